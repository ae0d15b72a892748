#!/bin/sh
# Runs targets, or all if none is named, with hostile input that coverage guides.
#
#   tests/fuzz/fuzz.sh SECONDS TARGET…     each target runs for this time
#
# Inputs that violate a property are written to `tests/fuzz/crashes/TARGET/`, and every later test runs them. Inputs that
# reach new code are kept in `target/fuzz/corpus/`.
set -eu
cd "$(dirname "$0")/../.."
folder=$PWD/tests/fuzz built=$PWD/target/fuzz
seconds=$1
shift

known=$(ls "$folder/seeds" | paste -s -d " ")
for target in "$@"; do
    if [ ! -d "$folder/seeds/$target" ]; then
        echo "$0: unknown target \`$target\`; targets: $known" >&2
        exit 1
    fi
done
# Each name is an argument of its own.
# shellcheck disable=SC2086
test $# -gt 0 || set -- $known

# Flags with which a stable compiler counts executed code for libFuzzer. Sanitizers need a nightly compiler. They are not
# used, because nearly all code here is safe and panics on errors.
sanitizer=-Cllvm-args=-sanitizer-coverage
flags="--cfg=fuzzing -Cpasses=sancov-module $sanitizer-level=4 $sanitizer-inline-8bit-counters"
flags="$flags $sanitizer-pc-table $sanitizer-trace-compares"
# The folder is a separate one, because the flags differ. With a named target, build scripts and macros are compiled
# without the flags.
host=$("${RUSTC:-rustc}" -vV | sed -n 's/^host: //p')
RUSTFLAGS=$flags "${CARGO:-cargo}" build --package ebb-fuzz --bin fuzz --features coverage --profile fuzz \
    --target "$host" --target-dir "$built"

broken=
for target in "$@"; do
    echo "== $target"
    corpus=$built/corpus/$target crashes=$folder/crashes/$target
    mkdir -p "$corpus" "$crashes"
    # Limits of one input in this build, in seconds, MiB, MiB and bytes.
    EBB_FUZZ_TARGET=$target "$built/$host/fuzz/fuzz" \
        -timeout=3 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=16384 \
        -print_final_stats=1 -verbosity=0 "-max_total_time=$seconds" \
        "-artifact_prefix=$crashes/" "-dict=$folder/words.dict" \
        "$corpus" "$folder/seeds/$target" "$crashes" || broken="$broken $target"
done
if [ -n "$broken" ]; then
    echo "$0: promises are broken:$broken" >&2
    exit 1
fi
echo "== no promise was broken in $seconds s of each of $*"
