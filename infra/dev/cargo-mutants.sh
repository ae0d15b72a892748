#!/bin/sh
# Changes the engine and the store in one place at a time, and runs the tests of the changed crate.
#
#   infra/dev/cargo-mutants.sh OPTION…     further options of cargo-mutants
#
# `.cargo/mutants.toml` selects the places. Results are in `target/mutants/mutants.out`. Fails if a change is not noticed.
set -eu
cd "$(dirname "$0")/../.."
folder=$PWD/target/mutants
mkdir -p "$folder"
# Dependencies do not depend on the copied sources and are built once.
code=0
CARGO_TARGET_DIR=$folder cargo-mutants mutants --package ebb-engine --package ebb-store --output "$folder" "$@" ||
    code=$?
# An endless test counts as noticed, but its exit code hides changes that are not noticed.
missed=$(cat "$folder/mutants.out/missed.txt")
if [ -n "$missed" ]; then
    echo "$0: no test notices $(echo "$missed" | wc -l) changes:" >&2
    echo "$missed" >&2
    exit 1
fi
# The codes of cargo-mutants if all changes were noticed, and if some tests did not end.
if [ "$code" -ne 0 ] && [ "$code" -ne 3 ]; then
    echo "$0: cargo-mutants failed: exit code $code" >&2
    exit 1
fi
