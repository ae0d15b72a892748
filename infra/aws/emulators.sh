#!/bin/sh
# Tests the built functions with emulators: MiniStack for AWS, and Lambda's runtime interface emulator. The program `aws-e2e`
# runs them in namespaces. When it ends, all its processes end.
#
#   infra/aws/emulators.sh possible                   succeeds if namespaces can be created
#   infra/aws/emulators.sh stack CONSOLE              deploys the stack and uses it; CONSOLE is the check of the console
#   infra/aws/emulators.sh functions ARCHITECTURE     measures the functions against an empty function, and fails if one
#                                                     takes too long to start
#
# CARGO_TARGET_DIR has the built programs `ebb` and `aws-e2e`.
set -eu
cd "$(dirname "$0")/../.."
built=$PWD/target/aws tools=$PWD/target/aws/sam/bin
# The address of the emulators, on their own network. The functions call only public addresses, and this is one.
address=11.0.0.1

# Runs a command in a network and a process namespace.
inside() {
    unshare --net --pid --fork --kill-child=KILL --mount-proc "$@"
}

# Runs a check of `aws-e2e`.
check() {
    infra/dev/setup.sh curl iproute2
    # shellcheck disable=SC2016
    inside sh -c 'ip link set lo up && ip address add "$0/32" dev lo && exec "$@"' "$address" \
        "$CARGO_TARGET_DIR/debug/aws-e2e" --tools "$tools" --address "$address" --log "$built/ministack.log" "$@"
}

case $1 in
    possible) inside true ;;
    stack)
        "$tools/python" infra/aws/staged.py "$built/build/template.yaml" "$built/build/staged.json"
        echo "== sam deploy, to MiniStack"
        check stack --template "$built/build/staged.json" --ebb "$CARGO_TARGET_DIR/debug/ebb" \
            --examples "$PWD/tests/examples" --console "$2"
        ;;
    functions)
        echo "== the functions under the runtime interface emulator"
        cp "$built"/sam/lib/python*/site-packages/samcli/local/rapid/"aws-lambda-rie-$2" "$built/rie"
        chmod 755 "$built/rie"
        check functions --rie "$built/rie" --built "$built/build" --empty "$built/empty/bootstrap"
        ;;
esac
