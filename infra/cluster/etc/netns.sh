# The first process of a cluster's namespaces: mounts their own folders, then only reaps ended processes.
set -eu
state=$1
# Own groups of mounts, so that volumes can be passed on between pods and nothing gets out.
mount --make-rshared /
mkdir -p "$state/pods"
mount --bind "$state/pods" /var/log
# Images and volumes in memory, some 450 MB: on a busy disk they take longer to write and to remove than all else.
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /run
# The machine's name servers are out of reach: who asks for the registry of an image fails at once.
if [ -f /etc/resolv.conf ]; then
    echo nameserver 127.0.0.1 >"$state/resolv.conf"
    mount --bind "$state/resolv.conf" /etc/resolv.conf
fi
# The kubelet writes these settings of the whole machine unless they have its values; here it reads that they do.
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
