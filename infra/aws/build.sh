#!/bin/sh
# Builds the Lambda functions with SAM, and an empty function in the same way. Prints the sizes of the programs and of their
# uploads, in bytes, and compares them with the empty function. Fails if an upload is too large for Lambda.
#
#   infra/aws/build.sh ARCHITECTURE     x86_64 or arm64
#
# CARGO_TARGET_DIR is one target folder for all functions, so that common code is compiled once.
set -eu
cd "$(dirname "$0")/../.."
architecture=$1 built=$PWD/target/aws
# The largest upload that Lambda accepts, in bytes.
max_zip=$((50 << 20))

echo "== sam build, for $architecture"
sam build --config-file infra/aws/samconfig.toml --parameter-overrides "Architecture=$architecture"
target=
test "$architecture" = x86_64 || target=--arm64
# shellcheck disable=SC2086
(cd functions/lambda && cargo-lambda lambda build --release --bin noop $target)
mkdir -p "$built/empty"
cp "$CARGO_TARGET_DIR/lambda/noop/bootstrap" "$built/empty/bootstrap"

printf '%-9s%12s%12s\n' '' bytes zipped
least=$(wc -c <"$built/empty/bootstrap")
for name in empty build/Receive build/Complete build/Sweep build/Api; do
    program=$built/$name/bootstrap
    plain=$(wc -c <"$program") zipped=$(gzip --to-stdout -6 "$program" | wc -c)
    printf '%-9s%12d%12d  %s times empty\n' "${name#build/}" "$plain" "$zipped" \
        "$(awk "BEGIN { printf \"%.1f\", $plain / $least }")"
    if [ "$zipped" -ge "$max_zip" ]; then
        echo "$0: $name is too large for Lambda" >&2
        exit 1
    fi
done
