#!/bin/sh
# A Kubernetes cluster with one node on this machine. `cargo xtask cluster` calls this script.
#
#   cluster.sh up                            builds missing programs, starts servers that do not run, waits until the node
#                                            accepts pods, and prints the places of the cluster
#   cluster.sh down                          stops the cluster and removes its state
#   cluster.sh runs                          succeeds if the cluster of this clone runs
#   cluster.sh kill SERVER [--signal SIGNAL]
#                                            sends a signal to a server, by default KILL; its pods continue
#   cluster.sh start SERVER                  starts a server that does not run
#   cluster.sh image NAME FROM [-- COMMAND…]
#                                            imports an archive, or a folder as the only layer of an image whose containers
#                                            run COMMAND; NAME has a registry and a tag: ebb.test/relay:1
#   cluster.sh registry TO                   writes images in place of those that Signadot's plugins name, as the files of
#                                            a registry, to a folder that is empty or missing; nothing is pulled from
#                                            outside of this machine
#
# A server is etcd, containerd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy or kro.
# The programs are built with Go or come from Debian. The images are built here. The cluster runs in its own namespaces, so
# its end removes everything. EBB_CLUSTER_CACHE is the folder of built programs and images.
set -eu
here=$(realpath "$(dirname "$0")")
root=$(realpath "$here/../..")
# The state, logs and settings, which `down` removes.
state=$root/target/cluster
etc=$state/etc
# The socket of containerd, in the namespaces.
socket=/run/containerd/containerd.sock
# The name of the only node.
node=ebb
# Seconds in which a server starts on a busy machine.
start_timeout=120
# Servers that need no other server, and those that need the API server.
first_servers='etcd containerd kube-apiserver'
second_servers='kube-controller-manager kube-scheduler kubelet kube-proxy'

fail() {
    echo "$0: $1" >&2
    exit 1
}

# Runs a command until it succeeds, and polls every 0.1 s. Fails after some seconds, or when one of `watched` has ended.
wait_for() {
    what=$1 seconds=$2 end=$(($(date +%s) + $2))
    shift 2
    until "$@" >/dev/null 2>&1; do
        for server in $watched; do
            check_running "$server"
        done
        [ "$(date +%s)" -le "$end" ] || fail "waited $seconds s for $what"
        sleep 0.1
    done
}

# Locks the start and the end of this clone's cluster. Servers do not inherit the lock.
lock() {
    mkdir -p "$root/target"
    exec 8>>"$root/target/cluster.lock"
    if ! flock --nonblock 8; then
        echo "another process starts or stops the cluster; waiting for it" >&2
        flock 8
    fi
}

# Reads the record of the namespaces: the number of the cluster, the pid of the first process on this machine, and the id of
# its process namespace, which detects a pid that was reused.
read_record() {
    test -f "$state/netns.json" || return 1
    number=$(field number) first=$(field init_pid) namespace=$(field namespace)
    # The cluster has the block 10.(232 + number).0.0/16. A link connects node and machine. Pods reach the machine at its end
    # of the link. The machine reaches pods and services through the node.
    block=10.$((232 + number))
    host=$block.0.1 address=$block.0.2 api=$block.64.1 services=$block.64.0/18 pods=$block.128.0/17
}

field() {
    sed "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/" "$state/netns.json"
}

# Succeeds if the cluster runs. A copy of the record in another clone is the record of no cluster.
runs() {
    read_record && [ "$(readlink "/proc/$first/ns/pid")" = "$namespace" ] && is_own
}

is_own() {
    tr '\0' '\n' <"/proc/$first/cmdline" | grep --quiet --line-regexp --fixed-strings "$state"
}

need() {
    runs || fail 'no cluster runs: start it with `cargo xtask cluster up`'
}

# Runs a command in the namespaces. Its environment has only PATH, and the variables before the command.
inside() {
    nsenter --target "$first" --net --mount --pid -- \
        env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@" 8>&-
}

# Runs kubectl as the administrator. The cluster is on this machine, so no proxy applies.
kubectl() {
    env --unset=HTTPS_PROXY --unset=https_proxy --unset=HTTP_PROXY --unset=http_proxy \
        "$state/bin/kubectl" --kubeconfig "$state/kubeconfig" "$@"
}

# Succeeds if the node is Ready and has no taints.
is_ready() {
    [ "$(kubectl get node "$node" --request-timeout=5s \
        --output 'jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints}')" = True ]
}

# Prints the folder of built programs.
built() {
    "$here/programs.sh" "$EBB_CLUSTER_CACHE" "$1" 8>&-
}

program() {
    case $1 in
        etcd) echo "$(built etcd)/server" ;;
        containerd) echo /usr/bin/containerd ;;
        kro) echo "$(built kro)/controller" ;;
        *) echo "$(built kubernetes)/$1" ;;
    esac
}

# Starts a server unless it runs. Its log is appended.
start() {
    server=$1
    ! running "$server" || return 0
    program=$(program "$server") variable=
    case $server in
        # The data is in memory, like all files of the namespaces. It is still there after etcd was killed.
        etcd)
            set -- --data-dir=/var/lib/etcd --unsafe-no-fsync --listen-client-urls=http://127.0.0.1:2379 \
                --advertise-client-urls=http://127.0.0.1:2379 --listen-peer-urls=http://127.0.0.1:2380
            ;;
        containerd) set -- "--config=$etc/containerd.toml" ;;
        kube-apiserver)
            set -- --etcd-servers=http://127.0.0.1:2379 "--advertise-address=$address" --secure-port=6443 \
                "--tls-cert-file=$etc/kube-apiserver.crt" "--tls-private-key-file=$etc/kube-apiserver.key" \
                "--client-ca-file=$etc/ca.crt" --anonymous-auth=false \
                --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction,PodSecurity \
                "--kubelet-certificate-authority=$etc/ca.crt" --kubelet-preferred-address-types=InternalIP \
                "--kubelet-client-certificate=$etc/kube-apiserver-client.crt" \
                "--kubelet-client-key=$etc/kube-apiserver-client.key" \
                --service-account-issuer=https://kubernetes.default.svc \
                "--service-account-key-file=$etc/accounts.pub" \
                "--service-account-signing-key-file=$etc/accounts.key" \
                "--service-cluster-ip-range=$services" --allow-privileged=true
            ;;
        # With the default limit of 20 requests per second, its start takes four seconds.
        kube-controller-manager)
            set -- "--kubeconfig=$etc/kube-controller-manager.kubeconfig" --leader-elect=false \
                --use-service-account-credentials "--service-account-private-key-file=$etc/accounts.key" \
                "--root-ca-file=$etc/ca.crt" --kube-api-qps=200 --kube-api-burst=400
            ;;
        kube-scheduler) set -- "--kubeconfig=$etc/kube-scheduler.kubeconfig" --leader-elect=false ;;
        kubelet)
            set -- "--kubeconfig=$etc/kubelet.kubeconfig" "--config=$etc/kubelet.yaml" "--hostname-override=$node" \
                "--node-ip=$address"
            ;;
        kube-proxy) set -- "--config=$etc/kube-proxy.yaml" ;;
        kro)
            set -- --metrics-bind-address=127.0.0.1:8078 --health-probe-bind-address=127.0.0.1:8079
            variable=KUBECONFIG=$etc/admin.kubeconfig
            ;;
        *) fail "unknown server $server" ;;
    esac
    mkdir -p "$state/run"
    # shellcheck disable=SC2016
    pid=$(inside ${variable:+"$variable"} sh -c 'log=$1; shift; setsid "$@" >>"$log" 2>&1 </dev/null & echo $!' start \
        "$state/log/$server.log" "$program" "$@")
    echo "$pid $program" >"$state/run/$server.pid"
}

# Succeeds if a server runs. `pid` is its number in the namespaces.
running() {
    test -f "$state/run/$1.pid" || return 1
    read -r pid program <"$state/run/$1.pid"
    # A process that has ended has no program. A reused pid has another program.
    exe=$(inside readlink "/proc/$pid/exe") || return 1
    # `setsid` becomes the program shortly after its start.
    [ "$exe" = "$program" ] || [ "${exe##*/}" = setsid ]
}

has_ended() {
    ! running "$1"
}

# Fails with the end of the log if a server does not run.
check_running() {
    running "$1" || fail "$1 has ended; its log ($state/log/$1.log) ends with
$(tail -n 10 "$state/log/$1.log")"
}

# Sends a signal. After KILL and TERM, waits until the server has ended.
kill_server() {
    running "$1" || fail "$1 does not run"
    # shellcheck disable=SC2016
    inside sh -c 'kill -s "$1" "$2"' kill "$2" "$pid"
    watched=
    case $2 in KILL | TERM) wait_for "the end of $1" 30 has_ended "$1" ;; esac
}

ctr() {
    inside ctr --address "$socket" --namespace k8s.io "$@"
}

import() {
    if [ ! -d "$2" ]; then
        ctr images import "$2" >/dev/null
        return
    fi
    archive=$state/import-$$.tar
    "$here/images.sh" archive "$1" "$2" "$3" "$archive"
    ctr images import "$archive" >/dev/null
    rm "$archive"
}

# Imports the images that containerd lacks.
import_all() {
    watched=containerd
    wait_for containerd "$start_timeout" inside test -S "$socket"
    folder=$state/images present=$(ctr images list --quiet)
    for image in pause busybox debian; do
        name=ebb.test/$image:1
        if echo "$present" | grep --quiet --line-regexp --fixed-strings "$name"; then
            continue
        fi
        case $image in
            pause)
                mkdir -p "$folder/pause"
                cp "$(built pause)/pause" "$folder/pause/pause"
                import "$name" "$folder/pause" '["/pause"]'
                ;;
            busybox)
                "$here/images.sh" busybox "$folder/busybox"
                import "$name" "$folder/busybox" '[]'
                ;;
            debian) import "$name" "$("$here/images.sh" debian "$EBB_CLUSTER_CACHE" "$name")" '[]' ;;
        esac
    done
    rm -rf "$folder"
}

# Writes the settings of the servers, keys and certificates. The kubeconfig is written last, so its presence shows that all
# exist.
write_settings() {
    cni=
    for folder in /opt/cni/bin /usr/lib/cni; do
        test ! -e "$folder/ptp" || cni=$folder
    done
    mkdir -p "$etc/cni"
    for form in containerd.toml cni.conflist kubelet.yaml kube-proxy.yaml; do
        file=$form
        test "$form" != cni.conflist || file=cni/10-ebb.conflist
        sed "s|{{etc}}|$etc|g; s|{{cni}}|$cni|g; s|{{name}}|ebbc$number|g; s|{{node}}|$node|g; s|{{pods}}|$pods|g" \
            "$here/etc/$form" >"$etc/$file"
    done
    "$here/keys.sh" "$etc" "$node" "$address" "$api"
    cp --preserve=mode "$etc/admin.kubeconfig" "$state/kubeconfig"
}

# Checks the requirements before anything is built.
check_requirements() {
    for program in unshare nsenter setsid flock; do
        command -v "$program" >/dev/null || fail "found no \`$program\`: install util-linux"
    done
    command -v go >/dev/null || fail 'found no `go`: install Go 1.26 (https://go.dev/dl), which builds Kubernetes'
    test -e /sys/fs/cgroup || fail 'found no control groups in /sys/fs/cgroup, which containers need'
    # These folders are private to the servers.
    for folder in "$root" "$EBB_CLUSTER_CACHE"; do
        case $folder/ in
            /run/* | /var/lib/* | /var/log/*)
                fail "$folder is in a folder that servers of the cluster cannot see: use another one"
                ;;
        esac
    done
}

close() {
    # The record may be a copy of that of another clone, whose cluster runs.
    if read_record && { [ "$(readlink "/proc/$first/ns/pid")" != "$namespace" ] || is_own; }; then
        "$here/namespaces.sh" close "$state" "$number" "$first" "$namespace" 8>&-
    fi
    rm -rf "$state"
}

up() {
    check_requirements
    "$here/../dev/setup.sh" busybox-static containerd containernetworking-plugins debootstrap iproute2 nftables openssl runc
    lock
    began=$(date +%s)
    for set in kubernetes helm kro etcd pause; do
        built "$set" >/dev/null
    done
    "$here/images.sh" debian "$EBB_CLUSTER_CACHE" ebb.test/debian:1 8>&- >/dev/null
    starting=$(date +%s)
    if ! runs; then
        # These are leftovers of a machine that was turned off, or of a killed start.
        close
        opened=$("$here/namespaces.sh" open "$state" 8>&-)
        echo "$opened" | (
            read -r number first namespace
            printf '{"number":%s,"init_pid":%s,"namespace":"%s"}' "$number" "$first" "$namespace" >"$state/netns.json"
        )
        read_record
    fi
    test -e "$state/kubeconfig" || write_settings
    mkdir -p "$state/bin"
    ln --symbolic --force "$(built kubernetes)/kubectl" "$(built helm)/helm" "$state/bin"
    start_all
    kubectl apply --server-side --filename "$(built kro)/crds" >&2
    start kro
    check_running kro
    now=$(date +%s)
    echo "the cluster runs: started in $((now - starting)) s, built in $((starting - began)) s" >&2
    printf '%-25s%s\n' kubeconfig "$state/kubeconfig" programs "$state/bin" logs "$state/log" 'this machine, from pods' "$host"
}

# Starts servers that do not run and waits until the node accepts pods.
start_all() {
    for server in $first_servers; do
        start "$server"
    done
    (import_all) &
    importing=$!
    watched=$first_servers
    wait_for 'the API server' "$start_timeout" kubectl get --raw=/readyz --request-timeout=5s
    for server in $second_servers; do
        start "$server"
    done
    watched="$first_servers $second_servers"
    wait_for 'the node' "$start_timeout" is_ready
    # The API server rejects pods without this account.
    wait_for 'the account of pods' "$start_timeout" kubectl get serviceaccount default
    wait "$importing" || fail 'importing images failed'
}

down() {
    if [ ! -e "$state" ]; then
        echo 'no cluster runs' >&2
        return
    fi
    began=$(date +%s)
    lock
    close
    echo "the cluster is stopped and removed ($(($(date +%s) - began)) s)" >&2
}

# Imports an image. The words after `--` become a list in JSON.
image() {
    name=$1 from=$(realpath "$2") entrypoint=
    shift 2
    test "${1:-}" != -- || shift
    for word in "$@"; do
        entrypoint=$entrypoint${entrypoint:+,}\"$(printf %s "$word" | sed 's/[\\"]/\\&/g')\"
    done
    import "$name" "$from" "[$entrypoint]"
}

# Writes the files of a registry. A test serves them, and containerd pulls from it.
registry() {
    debian=$("$here/images.sh" debian "$EBB_CLUSTER_CACHE" ebb.test/debian:1)
    terraform=$(built opentofu)/tofu
    "$here/images.sh" registry "$1" "$debian" "$terraform"
}

[ "$(id -u)" = 0 ] || fail 'not root: a cluster needs root for namespaces, mounts and containers'
[ $# -gt 0 ] || fail 'expected an action: up, down, kill, start, image or registry'
action=$1
shift
case $action in
    up | down | runs) "$action" ;;
    start) need && start "$1" ;;
    kill)
        need
        signal=${2:-KILL}
        kill_server "$1" "${3:-${signal#--signal=}}"
        ;;
    image) need && image "$@" ;;
    registry) registry "$1" ;;
    *) fail "unknown action $action" ;;
esac
