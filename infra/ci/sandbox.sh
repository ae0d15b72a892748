#!/bin/sh
# Starts or deletes a sandbox for a CI job. Usage: sandbox.sh start|delete
#
# `start` applies the document, waits until the sandbox is ready, and adds its environment to a file. The inputs are
# environment variables, so that no input becomes a part of a script: see docs/src/ci.md.
set -eu

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 2
}

command -v ebb >/dev/null || fail 'the program `ebb` is not in PATH: install it in an earlier step, or use an image with it'
[ -n "${EBB_URL:-}" ] || fail 'the URL of the server is missing: set the input `server`, or EBB_URL'
[ -n "${EBB_TOKEN:-}" ] || fail 'the token is missing: set the input `token`, or EBB_TOKEN'
[ -n "${EBB_NAME:-}" ] || fail 'the name of the sandbox is missing: set the input `name`, or EBB_NAME'
kind=${EBB_KIND:-sandbox}
timeout=${EBB_TIMEOUT:-10m}

start() {
    [ -n "${EBB_DOCUMENT:-}" ] || fail 'the document is missing: set the input `document`, or EBB_DOCUMENT'
    ebb apply --filename="$EBB_DOCUMENT" --set="name=$EBB_NAME" --kind="$kind" --wait=false >/dev/null
    ebb get -- "$kind" "$EBB_NAME" >/dev/null ||
        fail "the document names another target than $kind/$EBB_NAME: write \`name: \"@{name}\"\` in it"
    ebb wait --kind="$kind" --timeout="$timeout" -- "$EBB_NAME"
    set --
    if [ "${EBB_SKIP_SENSITIVE:-false}" = true ]; then
        set -- --skip-sensitive
    fi
    if [ -n "${GITHUB_ENV:-}" ]; then
        ebb env --kind="$kind" --output=github "$@" -- "$EBB_NAME" >>"$GITHUB_ENV"
    else
        ebb env --kind="$kind" --output=gitlab "$@" -- "$EBB_NAME" >>"${EBB_ENV_FILE:-ebb.env}"
    fi
}

delete() {
    code=0
    ebb delete --wait-timeout="$timeout" -- "$kind" "$EBB_NAME" || code=$?
    # A sandbox that was never created, or that has ended, is a success.
    if [ "$code" = 1 ] && ebb wait --kind="$kind" --for=gone --timeout=0s -- "$EBB_NAME" 2>/dev/null; then
        code=0
    fi
    exit "$code"
}

case ${1:-} in
start) start ;;
delete) delete ;;
*) fail 'unknown command: expected start or delete' ;;
esac
