# Functions of scripts that run OpenTofu with `main.tf`. BUCKET is the bucket of the states.
#
# The state has the key of the unit that makes the resources, so its attempts and its undo use the same state. STATE is
# this key if an attempt has succeeded.
state="${STATE:-$EBB_KEY}"
killed=
export TF_VAR_key="$state" TF_CLI_ARGS=-no-color TF_IN_AUTOMATION=1 TF_INPUT=0
cd "$(mktemp -d)"
# At a timeout and a cancel, OpenTofu gets SIGTERM as well. It saves the state and releases the lock meanwhile.
trap 'exit 143' TERM

# Connects to the state, and removes the lock of an attempt that was killed.
#
# Ebb starts an attempt when the earlier ones have ended. They ran on this machine, or in pods with names such as
# `ebb-sandbox-shop-db-apply-DIGEST-POD`, where DIGEST has 10 characters and POD has 5. Scripts of other instances have
# other states. The lock of a person elsewhere stays, and OpenTofu waits for it.
connect() {
    tofu init -backend-config="bucket=$BUCKET" -backend-config="key=ebb/$state/terraform.tfstate"
    # No lock has this ID, so this only prints the lock, if there is one.
    lock=$(tofu force-unlock -force none 2>&1 || true)
    id=$(printf '%s\n' "$lock" | sed -n 's/^ *ID: *\([0-9a-f-]*\)$/\1/p')
    holder=$(printf '%s\n' "$lock" | sed -n 's/^ *Who: *//p')
    case "$holder" in
    *@ebb-*-??????????-????? | *@"$(hostname)")
        echo "$holder has left the lock $id: an earlier attempt was killed"
        tofu force-unlock -force "$id"
        killed=yes
        ;;
    esac
}

apply() {
    tofu apply -auto-approve -lock-timeout=30s
}

# Destroys all resources, and deletes the state.
destroy() {
    # OpenTofu writes the state every 20 s, so it may lack what a killed apply has made. Another apply adds it.
    if [ -n "$killed" ] || [ -z "${STATE:-}" ]; then
        apply || echo "this apply has failed, too; destroying what the state has"
    fi
    tofu destroy -auto-approve -lock-timeout=30s
    # OpenTofu deletes the state of a workspace only. With this prefix, the state is that of a workspace.
    tofu init -reconfigure -backend-config="bucket=$BUCKET" -backend-config=workspace_key_prefix=ebb \
        -backend-config=key=terraform.tfstate
    if tofu workspace list | grep -q " $state\$"; then
        tofu workspace delete "$state"
    fi
}
