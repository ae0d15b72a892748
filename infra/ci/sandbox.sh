#!/bin/sh
# Starts or deletes a sandbox for a CI job. Usage: sandbox.sh start|delete
#
# `start` applies the document, waits until the sandbox is ready, and adds its environment to a file. `delete` deletes the
# sandbox that `start` of this workflow has applied. The inputs are environment variables, so that no input becomes a part of
# a script: see docs/src/ci.md.
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
skip_sensitive=${EBB_SKIP_SENSITIVE:-false}
allow_replace=${EBB_ALLOW_REPLACE:-false}
by_name=${EBB_BY_NAME:-false}
if [ -n "${GITHUB_ENV:-}" ]; then
    form=github file=$GITHUB_ENV
else
    form=gitlab file=${EBB_ENV_FILE:-ebb.env}
fi
# The variable with what `start` has done, for later steps and jobs. The last one of the file counts. Its value is:
# - GENERATION.UID: the instance that the server has accepted
# - none: the server has accepted no document
# - unknown.GENERATION.UID: the request began, its outcome is not known, and the key of this job gives the UID
# - unknown: the same for a sandbox that exists, which can be that of another job
started_variable=ebb_started_$(printf %s "$kind/$EBB_NAME" | cksum | cut -d ' ' -f 1)

record() {
    printf '%s=%s\n' "$started_variable" "$1" >>"$file"
}

# Records what an earlier step has recorded, or without it what is known without an accepted request.
record_former_or() {
    former=$(printenv "$started_variable") || former=
    case $former in
    '' | none) record "$1" ;;
    *) record "$former" ;;
    esac
}

# Fails unless the value of an input is one of two words, or a third one.
check_switch() {
    case $2 in
    true | false | "${3:-false}") ;;
    *) fail "$1 is wrong: expected true${3:+, $3} or false" ;;
    esac
}

# Fails if the token lacks a scope, with any limit.
need_scope() {
    case $caller in
    *"\"$1\""* | *"\"$1:"* | *'"operate"'*) ;;
    *) fail "the token lacks the scope $1, which $2 needs: ebb token create" ;;
    esac
}

# Fails if the token, the form or a switch does not permit what the job wants, before anything is created.
check_inputs() {
    [ -n "${EBB_DOCUMENT:-}" ] || fail 'the document is missing: set the input `document`, or EBB_DOCUMENT'
    check_switch EBB_ALLOW_REPLACE "$allow_replace"
    check_switch EBB_SKIP_SENSITIVE "$skip_sensitive"
    check_switch EBB_REVEAL "$reveal" unmasked
    if [ "$reveal" = true ] && [ $form = gitlab ]; then
        fail 'GitLab prints variables of a dotenv report in clear: EBB_REVEAL=unmasked accepts that'
    fi
    caller=$(ebb whoami --output=json) || {
        code=$?
        # An earlier attempt of this job may have applied the sandbox.
        record_former_or unknown
        exit $code
    }
    # Otherwise `start` could not wait, and `delete` could not see that the sandbox is gone.
    need_scope read 'a job'
    [ "$reveal" = false ] || need_scope targets:reveal 'the input `reveal`'
}

# Fails unless the dry run has the target of the job.
check_target() {
    targets=$(printf '%s\n' "$planned" | sed -n \
        -e 's/^    "target": "\(.*\)",$/\1/p' \
        -e '/^    "kind": /{N; s/^    "kind": "\(.*\)",\n    "name": "\(.*\)",$/\1\/\2/p;}')
    count=$(printf '%s\n' "$targets" | grep -c -v -E '^$|^(connection|plugin|source|subscription)/') || true
    [ "$count" -le 1 ] || fail "the document has $count targets, and \`delete\` of a job deletes one: start each in a job of its own"
    other=
    while IFS= read -r target; do
        [ "$target" != "$kind/$EBB_NAME" ] || return 0
        [ "${target#*/}" != "$EBB_NAME" ] || other=${target%%/*}
    done <<EOF
$targets
EOF
    [ -z "$other" ] || fail "the target is $other/$EBB_NAME, and not of the kind $kind: set the input \`kind\`, or EBB_KIND, to $other"
    fail "the document names another target than $kind/$EBB_NAME: write \`name: \"@{name}\"\` in it"
}

# Prints .GENERATION.UID of the instance that a planned request creates, or nothing if it creates none.
created() {
    printf '%s\n' "$planned" | grep -F -x -A 3 -- "    \"target\": \"$kind/$EBB_NAME\"," | tr -d '\n' | sed -n \
        -e 's/.*"uid": "\([^"]*\)", *"generation": 1, *"result": "starting".*/.1.\1/p' \
        -e 's/.*"uid": "\([^"]*\)", *"generation": 1, *"result": "waiting".*/.1.\1/p'
}

start() {
    # From now on, `delete` of this job deletes what it has applied, and nothing that another run has.
    record_former_or none
    check_inputs
    set -- --filename="$EBB_DOCUMENT" --set="name=$EBB_NAME" --kind="$kind"
    while IFS= read -r line; do
        [ -z "$line" ] || set -- "$@" --set="$line"
    done <<EOF
${EBB_SET:-}
EOF
    # The UID of a new sandbox follows from the key, so that `delete` knows it without an answer of the server.
    key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    set -- "$@" --idempotency-key="$key"
    left_out=
    if [ "$skip_sensitive" = true ] || [ "$reveal" != false ]; then
        left_out=--skip-sensitive
    fi
    replace=
    [ "$allow_replace" = false ] || replace=--allow-replace
    while :; do
        # A wrong document, name or timeout, and a variable that cannot be exported, creates nothing.
        planned=$(ebb apply "$@" --wait-timeout="$timeout" --dry-run --check-env=$form $left_out --output=json) || {
            code=$?
            case $planned in
            *'--set '*) printf 'help: a variable is a line NAME=VALUE of the input `set`, or EBB_SET\n' >&2 ;;
            *' --skip-sensitive"'*) printf 'help: the inputs are `reveal` and `skip-sensitive`, or EBB_REVEAL and EBB_SKIP_SENSITIVE\n' >&2 ;;
            esac
            exit $code
        }
        check_target
        own=$(created)
        case $own$planned in
        '['*'    "dryRun": true'*)
            # The file has documents that are not stored yet, so the server cannot plan its sandbox. The UID is that of any other
            # document with the kind, name and key.
            planned=$(printf 'apiVersion: ebb.dev/v1\nkind: Sandbox\nname: "@{name}"\n' |
                ebb apply --filename=- --set="name=$EBB_NAME" --kind="$kind" --idempotency-key="$key" --dry-run --output=json \
                    2>/dev/null) || planned=
            own=$(created) ;;
        esac
        # Also a job that is cancelled, or gets no answer, deletes its sandbox.
        record "unknown$own"
        code=0
        messages=$(ebb apply "$@" $replace ${own:+--if-generation=0} --wait=false 2>&1 >/dev/null) || code=$?
        # Another run has created the sandbox since the dry run. The next one shows an update.
        case $messages in
        *"$kind/$EBB_NAME does not have generation 0;"*) continue ;;
        esac
        break
    done
    printf '%s\n' "$messages" >&2
    started=$(printf '%s\n' "$messages" | grep -F -- " $kind/$EBB_NAME (uid " |
        sed -n 's/.* (uid \([^ ]*\), generation \([0-9]*\)).*$/\2.\1/p')
    # Without an instance, exit code 1 is a refusal. A server that fails or does not answer is exit code 2.
    if [ -n "$started" ]; then
        record "$started"
    elif [ $code = 1 ]; then
        record_former_or none
    fi
    [ $code = 0 ] || exit $code
    [ -n "$started" ] || fail "ebb apply has not printed the instance of $kind/$EBB_NAME"
    ebb wait --kind="$kind" --timeout="$timeout" -- "$EBB_NAME" >&2
    set --
    if [ "$skip_sensitive" = true ]; then
        set -- --skip-sensitive
    fi
    if [ "$reveal" != false ]; then
        set -- "$@" --reveal
    fi
    ebb env --kind="$kind" --output=$form "$@" -- "$EBB_NAME" >>"$file"
}

# Fails because it is not known whether the sandbox is that of the job.
leave() {
    fail "the outcome of \`start\` is not known, and $kind/$EBB_NAME $1: look at it, and if it is of this job, run: ebb delete $kind $EBB_NAME"
}

# Reads the end of the sandbox into `seen`: its JSON, `null` if it does not exist, or `hidden` if the token cannot know that.
# Fails if it lives, or cannot be read.
read_end() {
    seen=$(ebb wait --kind="$kind" --for=gone --timeout=0s --output=json -- "$EBB_NAME" 2>/dev/null) || case $seen in
    *', or the token may not read it"'*) seen=hidden ;;
    *) return 1 ;;
    esac
}

delete() {
    code=0
    is_unknown=false
    # The option refuses a kind of documents, which are no sandboxes.
    set -- --kind="$kind"
    started=$(printenv "$started_variable") || started=
    case $started in
    '')
        if [ "$by_name" = false ]; then
            # The sandbox can be that of another run.
            read_end || fail "no \`start\` of this workflow is recorded, so $kind/$EBB_NAME stays, which exists or cannot be read: \
set the input \`by-name\`, or EBB_BY_NAME, to true to delete it without that"
            printf 'no `start` of this workflow is recorded, so nothing is deleted\n' >&2
            exit 0
        fi ;;
    none)
        printf 'this job has applied no %s/%s, so it deletes none\n' "$kind" "$EBB_NAME" >&2
        exit 0 ;;
    unknown*)
        is_unknown=true
        started=${started#unknown}
        started=${started#.} ;;
    esac
    if [ -n "$started" ]; then
        set -- "$@" --uid="${started#*.}" --if-generation="${started%%.*}"
    fi
    outcome=
    if [ $is_unknown = true ] && [ -z "$started" ]; then
        # The sandbox can be that of another run, so it is not deleted.
        code=1
    else
        outcome=$(ebb delete --wait-timeout="$timeout" --output=json "$@" -- "$kind" "$EBB_NAME") || code=$?
    fi
    case $outcome in
    *'a creation of it that arrives later is refused'*)
        # `ebb delete` has printed that. No sandbox of this job exists or can come.
        exit 0 ;;
    *'"code": "outdated"'*)
        [ $is_unknown = false ] || leave 'has another instance or generation'
        printf '%s/%s stays: another run has applied it since\n' "$kind" "$EBB_NAME" >&2
        exit 0 ;;
    esac
    if [ "$code" != 1 ]; then
        # A token that may not read the sandbox sees none, also while it lives.
        if [ "$code" = 0 ] && read_end; then
            case $seen in
            null | hidden) fail "the token does not see the end of $kind/$EBB_NAME: use the token of \`start\`, or one with \`read\`" ;;
            esac
        fi
        exit "$code"
    fi
    # A sandbox that was never created, or that has ended, is a success.
    if read_end; then
        case $is_unknown.$seen in
        true.null) printf '%s/%s does not exist: its creation has failed\n' "$kind" "$EBB_NAME" >&2 ;;
        true.hidden) leave 'is not visible for a token with a limited scope `read`' ;;
        false.null | false.hidden)
            [ -z "$started" ] ||
                fail "the token sees no $kind/$EBB_NAME, which \`start\` has applied: use the token of \`start\`, or one with \`read\`"
            [ "$seen" = null ] ||
                fail "$kind/$EBB_NAME does not exist, or the token may not read it: use one with \`read\`" ;;
        esac
        exit 0
    fi
    [ $is_unknown = false ] || leave 'exists, or cannot be read'
    exit 1
}

check_switch EBB_BY_NAME "$by_name"
case ${1:-} in
start) start ;;
delete) delete ;;
*) fail 'unknown command: expected start or delete' ;;
esac
