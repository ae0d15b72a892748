#!/bin/sh
# Installs the Debian packages that the parts of `cargo xtask verify` need. Rust and Go come from elsewhere.
#
#   infra/dev/setup.sh             installs all packages
#   infra/dev/setup.sh PACKAGE…    installs these packages
#
# Packages whose probe succeeds are skipped. If none is missing, the script needs neither network nor root.
set -eu

# A package and its probe: a command that succeeds if the package, or a program that replaces it, is installed.
packages() {
    cat <<'END'
build-essential             cc --version
ca-certificates             test -e /etc/ssl/certs/ca-certificates.crt
git                         git --version
python3                     python3 --version
busybox-static              ! ldd /bin/busybox && /bin/busybox true
chromium                    chromium --version
containerd                  containerd --version && ctr --version
containernetworking-plugins test -e /usr/lib/cni/ptp || test -e /opt/cni/bin/ptp
curl                        curl --version
debootstrap                 debootstrap --version
default-jre-headless        java -version
fonts-liberation            ls /usr/share/fonts/truetype/liberation*/LiberationSans-Regular.ttf
iproute2                    ip -V
maven                       mvn --version
nftables                    nft --version
openssl                     openssl version
podman                      podman --version
postgresql                  psql --version && { initdb --version || ls /usr/lib/postgresql/*/bin/initdb; }
python3-venv                python3 -c 'import ensurepip, venv'
runc                        runc --version
END
}

for name in "$@"; do
    if ! packages | grep -q "^$name "; then
        echo "$0: unknown package $name" >&2
        exit 2
    fi
done

missing=$(packages | while read -r name probe; do
    case " ${*:-$name} " in
        *" $name "*) (eval "$probe") >/dev/null 2>&1 </dev/null || printf ' %s' "$name" ;;
    esac
done)
test -n "$missing" || exit 0

if ! command -v apt-get >/dev/null; then
    echo "$0: no apt-get: install$missing" >&2
    exit 1
fi
echo "installing$missing" >&2
as_root=
test "$(id -u)" -eq 0 || as_root=sudo
# A machine that has just started can hold the lock for a minute. Each name is an argument of its own.
apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 "$@"; }
apt update --quiet
# shellcheck disable=SC2086
apt install --quiet --yes --no-install-recommends $missing
