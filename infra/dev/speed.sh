#!/bin/sh
# Measures builds, tests and their size in fresh clones of the last commit, and prints a table.
#
#   infra/dev/speed.sh FOLDER           runs the commands of the README and `.ci/run`
#   infra/dev/speed.sh FOLDER --no-ci   leaves out the rows of `.ci/run`
#
# FOLDER is for the clones. It must not exist, and is removed at the end. The script fails if a command fails. A missed goal
# appears in the table only.
set -eu

folder=${1:?usage: infra/dev/speed.sh FOLDER [--no-ci]}
if [ -e "$folder" ]; then
    echo "$0: $folder exists already; choose a new folder" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
trap 'rm -rf "$folder"' EXIT
# Each clone has its own target folder.
unset CARGO_TARGET_DIR

table=$(printf '| | measured | goal |\n|---|---|---|')
row() {
    table=$(printf '%s\n| %s | %s | %s |' "$table" "$1" "$2" "$3")
}

# Clones the last commit and goes there.
enter() {
    git clone --quiet "$root" "$folder/$1"
    cd "$folder/$1"
}

# Runs a command. Adds a row with its time if it has a description and a goal.
timed() {
    echo "== $1"
    began=$(date +%s)
    sh -c "$1"
    seconds=$(($(date +%s) - began))
    took=$(printf '%d min %02d s' $((seconds / 60)) $((seconds % 60)))
    echo "== $took"
    [ $# -eq 1 ] || row "$2" "$took" "$3"
}

# Prints a command of the README, a code block, by its number.
command_of_readme() {
    awk -v wanted="$1" '/^```sh$/ { block++; inside = 1; next } /^```/ { inside = 0 } inside && block == wanted' README.md
}

change=0
# Adds a new constant to `flow`.
change_flow() {
    change=$((change + 1))
    printf '/// A change.\npub const CHANGE_%s: usize = %s;\n' $change $change >>shared/flow/src/lib.rs
}

enter newcomer
timed "$(command_of_readme 1)" "README's first command, nothing built" "4 min 30 s"
timed "$(command_of_readme 2)" "README's second command after it" "10 min"
unit='cargo test -p ebb-flow --lib'
timed "$unit"
change_flow
timed "$unit" 'one line changed in `flow`, until its unit tests have run' "45 s"
messages=$(cargo test --no-run --quiet --message-format=json)
executables=$(echo "$messages" | grep '"package_id":"path+' | grep -o '"executable":"[^"]*"' | sort -u | wc -l)
row "executables linked by the tests" "$executables" 25
packages=$(cargo tree -p ebb -e no-dev --prefix none --format '{p}' | sed 's/ (\*)$//' | sort -u | wc -l)
row 'packages that the `ebb` program compiles' "$packages" 390
chores=$(cargo xtask --help | awk '/^Commands:/ { listed = 1; next } /^$/ { listed = 0 } listed && $1 != "help"' | wc -l)
row 'chores of `cargo xtask`' "$chores" 8
if [ "${2-}" != --no-ci ]; then
    enter ci
    timed .ci/run '`.ci/run`, nothing built' "20 min"
    change_flow
    timed .ci/run '`.ci/run`, one line changed in `flow`' "6 min"
fi
printf '\n%s\n' "$table"
