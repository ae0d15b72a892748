#!/bin/sh
# The namespaces of a cluster: processes, mounts, network. The machine itself gets a link, a route and control groups.
#
#   namespaces.sh open STATE                           opens them, prints the cluster's number, the pid of their first
#                                                      process, and the id of the process namespace
#   namespaces.sh close STATE NUMBER PID NAMESPACE     ends all of their processes and removes what the machine got
set -eu

# The cluster NUMBER has the block 10.(232 + NUMBER).0.0/16. A machine runs at most 16 clusters.
numbers=16

fail() {
    echo "$0: $1" >&2
    exit 1
}

# Prints the control group of a cluster in each hierarchy of the machine.
groups() {
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        echo "/sys/fs/cgroup/ebbc$1"
    else
        find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d | sed "s|$|/ebbc$1|"
    fi
}

# Prints the control groups of a cluster that exist.
present_groups() {
    groups "$1" | while read -r group; do
        test ! -d "$group" || echo "$group"
    done
}

# Removes the control groups of a cluster and their children. Those with processes remain.
remove_groups() {
    present_groups "$1" | while read -r group; do
        find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    done
}

inside() {
    nsenter --target "$first" --net --mount --pid -- "$@"
}

# Links the network namespace of the first process with the machine, by the first unused block of addresses.
link_network() {
    routes=$(ip -4 route show table all)
    number=0
    while [ "$number" -lt "$numbers" ]; do
        block=10.$((232 + number)) name=ebbc$number
        # The name of the link reserves the number: a second link of that name is rejected.
        if ! echo "$routes" | grep -Eq "(^| )$block\." && [ ! -e "/sys/class/net/$name" ] &&
            ip link add "$name" type veth peer name eth0 netns "$first"; then
            ip address add "$block.0.1/30" dev "$name"
            ip link set "$name" up
            inside ip address add "$block.0.2/30" dev eth0
            inside ip link set eth0 up
            inside ip route add default via "$block.0.1"
            ip route add "$block.0.0/16" via "$block.0.2"
            return
        fi
        number=$((number + 1))
    done
    fail "no free block of addresses: this machine runs $numbers clusters, or uses 10.232.0.0 and up for something else"
}

open() {
    mkdir -p "$state/log"
    log=$state/log/netns.log
    setsid unshare --net --mount --pid --fork --kill-child=KILL --mount-proc --propagation private \
        -- sh "$(dirname "$0")/etc/netns.sh" "$state" </dev/null >"$log" 2>&1 &
    outer=$!
    # Nothing is recorded yet, so `close` would not find these processes.
    trap 'kill -KILL "$outer" 2>/dev/null; test -z "${number:-}" || remove_groups "$number"' EXIT
    trap 'exit 1' INT TERM
    tries=100
    while [ ! -e "$state/open" ]; do
        kill -0 "$outer" 2>/dev/null || fail "cannot open the namespaces: $(cat "$log")"
        [ "$tries" -gt 0 ] || fail "waited 10 s for the cluster's namespaces: $(cat "$log")"
        tries=$((tries - 1))
        sleep 0.1
    done
    first=$(tr -d ' ' <"/proc/$outer/task/$outer/children")
    link_network
    groups "$number" | while read -r group; do mkdir -p "$group"; done
    trap - EXIT
    echo "$number $first $(readlink "/proc/$first/ns/pid")"
}

runs() {
    [ "$(readlink "/proc/$first/ns/pid")" = "$namespace" ]
}

# Prints what remains of a cluster. Its processes, namespaces and link disappear shortly after its first process.
leftovers() {
    awk -v state="$state" '$2 == state || index($2, state "/") == 1 { print "mount " $2 }' /proc/self/mounts
    present_groups "$number"
    test ! -e "/sys/class/net/ebbc$number" || echo "link ebbc$number"
    ls -l /proc/[0-9]*/ns/pid 2>/dev/null | awk -v id="$namespace" '$NF == id { print "process " $(NF - 2) }'
}

close() {
    number=$1 first=$2 namespace=$3
    if runs; then
        kill -KILL "$first"
    fi
    tries=300
    while
        remove_groups "$number"
        left=$(leftovers)
        [ -n "$left" ]
    do
        [ "$tries" -gt 0 ] || fail "leftovers of the cluster: $(echo "$left" | paste -s -d ,)"
        tries=$((tries - 1))
        sleep 0.1
    done
}

action=$1 state=$2
shift 2
"$action" "$@"
