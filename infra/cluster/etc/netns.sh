# The first process of a cluster's namespaces: mounts private folders, then reaps ended processes.
set -eu
state=$1
# Shared mounts, so that pods can share volumes; they do not propagate to the machine.
mount --make-rshared /
mkdir -p "$state/pods"
mount --bind "$state/pods" /var/log
# Images and volumes are in memory, about 450 MB, because a busy disk would dominate the start and the end.
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /run
# The machine's name servers are unreachable. Without this file, lookups of registries would time out.
if [ -f /etc/resolv.conf ]; then
    echo nameserver 127.0.0.1 >"$state/resolv.conf"
    mount --bind "$state/resolv.conf" /etc/resolv.conf
fi
# The kubelet sets these values of the whole machine unless they are set. These files show them as set.
mkdir -p "$state/sysctl"
while read -r name value; do
    file=$state/sysctl/$(echo "$name" | tr / .)
    echo "$value" >"$file"
    mount --bind "$file" "/proc/sys/$name"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo open >"$state/open"
while :; do
    sleep 2147483647 &
    wait
done
