# Installs the entrypoint in the root folder $1, and runs it as an unprivileged user.
set -e
cd /
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=0777 tmpfs "$1/ebb/bin"
mount -t tmpfs -o mode=0777,noexec tmpfs "$1/ebb/own"
mount --bind "$1/dev/termination-log" "$1/dev/termination-log"
mount -o remount,bind,rw "$1/dev/termination-log"
mount --bind /dev/null "$1/dev/null"
chroot --userspec=65534:65534 "$1" /init install /ebb/bin
stat -c '%a %u' "$1/ebb/bin/ebb-entrypoint"
ls -A "$1/ebb/bin"
exec chroot --userspec=65534:65534 "$1" /ebb/bin/ebb-entrypoint run --spec /ebb/in/spec.json
