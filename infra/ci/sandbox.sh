#!/bin/sh
# Starts or deletes a sandbox for a CI job. Usage: sandbox.sh start|delete
#
# `start` applies the document, waits until the sandbox is ready, and adds its environment to a file. `delete` deletes the
# sandbox that `start` of this job has applied. The inputs are environment variables, so that no input becomes a part of a
# script: see docs/src/ci.md.
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
reveal=${EBB_REVEAL:-false}
if [ -n "${GITHUB_ENV:-}" ]; then
    form=github file=$GITHUB_ENV
else
    form=gitlab file=${EBB_ENV_FILE:-ebb.env}
fi
# The variable with generation and UID of the sandbox, for later steps and jobs. Its name ends with a number.
started_variable=ebb_started_$(printf %s "$kind/$EBB_NAME" | cksum | cut -d ' ' -f 1)

# Fails if the token or the form does not permit what the job wants, before anything is created.
check_reveal() {
    case $reveal in
    false) return ;;
    unmasked) ;;
    true)
        [ $form = github ] || fail 'GitLab prints variables of a dotenv report in clear: EBB_REVEAL=unmasked accepts that' ;;
    *) fail 'EBB_REVEAL is wrong: expected true, unmasked or false' ;;
    esac
    caller=$(ebb whoami --output=json)
    case $caller in
    *'"targets:reveal'* | *'"operate"'*) ;;
    *) fail 'the token lacks the scope targets:reveal, which the input `reveal` needs: ebb token create' ;;
    esac
}

start() {
    [ -n "${EBB_DOCUMENT:-}" ] || fail 'the document is missing: set the input `document`, or EBB_DOCUMENT'
    # From now on, `delete` of this job deletes what it has applied, and nothing that another run has.
    printf '%s=none\n' "$started_variable" >>"$file"
    check_reveal
    set -- --filename="$EBB_DOCUMENT" --set="name=$EBB_NAME" --kind="$kind"
    while IFS= read -r line; do
        [ -z "$line" ] || set -- "$@" --set="$line"
    done <<EOF
${EBB_SET:-}
EOF
    # A wrong document, name or timeout creates nothing.
    planned=$(ebb apply "$@" --wait-timeout="$timeout" --dry-run 2>&1 >/dev/null) || {
        code=$?
        printf '%s\n' "$planned" >&2
        exit $code
    }
    case "$planned " in
    *" $kind/$EBB_NAME"[!a-zA-Z0-9._-]*) ;;
    *) fail "the document names another target than $kind/$EBB_NAME: write \`name: \"@{name}\"\` in it" ;;
    esac
    if [ "${EBB_ALLOW_REPLACE:-false}" = true ]; then
        set -- "$@" --allow-replace
    fi
    code=0
    messages=$(ebb apply "$@" --wait=false 2>&1 >/dev/null) || code=$?
    printf '%s\n' "$messages" >&2
    [ $code = 0 ] || exit $code
    started=$(printf '%s\n' "$messages" | grep -F -- " $kind/$EBB_NAME (uid " |
        sed -n 's/.* (uid \([^ ]*\), generation \([0-9]*\)).*$/\2.\1/p')
    [ -n "$started" ] || fail "ebb apply has not printed the instance of $kind/$EBB_NAME"
    # Also a job that fails or is cancelled while it waits deletes its sandbox.
    printf '%s=%s\n' "$started_variable" "$started" >>"$file"
    ebb wait --kind="$kind" --timeout="$timeout" -- "$EBB_NAME"
    set --
    if [ "${EBB_SKIP_SENSITIVE:-false}" = true ]; then
        set -- --skip-sensitive
    fi
    if [ "$reveal" != false ]; then
        set -- "$@" --reveal
    fi
    ebb env --kind="$kind" --output=$form "$@" -- "$EBB_NAME" >>"$file"
}

delete() {
    code=0
    set --
    started=$(printenv "$started_variable") || started=
    if [ "$started" = none ]; then
        printf 'this job has applied no %s/%s, so it deletes none\n' "$kind" "$EBB_NAME" >&2
        exit 0
    fi
    if [ -n "$started" ]; then
        set -- --uid="${started#*.}" --if-generation="${started%%.*}"
    fi
    outcome=$(ebb delete --wait-timeout="$timeout" --output=json "$@" -- "$kind" "$EBB_NAME") || code=$?
    case $outcome in
    *'"code": "outdated"'*)
        printf '%s/%s stays: another run has applied it since\n' "$kind" "$EBB_NAME" >&2
        exit 0 ;;
    esac
    # A sandbox that was never created, or that has ended, is a success.
    if [ "$code" = 1 ] &&
        seen=$(ebb wait --kind="$kind" --for=gone --timeout=0s --output=json -- "$EBB_NAME" 2>/dev/null); then
        if [ -n "$started" ] && [ "$seen" = null ]; then
            fail "the token sees no $kind/$EBB_NAME, which \`start\` has applied: use the token of \`start\`, or one with \`read\`"
        fi
        code=0
    fi
    exit "$code"
}

case ${1:-} in
start) start ;;
delete) delete ;;
*) fail 'unknown command: expected start or delete' ;;
esac
