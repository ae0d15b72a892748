#!/bin/sh
# Installs by apt what the parts of `cargo xtask verify` need on Debian, and reports what apt does not have: Rust, Go.
#
#   infra/dev/setup.sh           installs what is missing
#   infra/dev/setup.sh --check   reports what is missing and changes nothing
#
# Exits with 0 if nothing is missing at the end, 1 if something is, 2 for a wrong option.
#
# Each part of verify installs its own packages as well. With this script they are there before the first part starts,
# and a part needs no rights to install. The packages are those of infra/xtask/src/packages.rs, whose test compares the
# names, and the tools that Rust builds with.
set -eu

# Debian keeps nft, debootstrap and ip in folders that only root has in PATH.
PATH="$PATH:/usr/sbin:/sbin"

RUST=1.95
GO=1.26
PYTHON=3.11

missing=
unsuitable=

# need PACKAGE REASON TEST...: notes the package if the test fails. A test of the program accepts one from elsewhere.
need() {
    package=$1 reason=$2
    shift 2
    if "$@" >/dev/null 2>&1; then
        return
    fi
    echo "missing: $package ($reason)"
    missing="$missing $package"
}

# need_version NAME MINIMUM FOUND ADVICE: notes a tool that is missing or too old.
need_version() {
    if [ -n "$3" ] && printf '%s\n%s\n' "$2" "$3" | sort -V -C; then
        return
    fi
    echo "missing: $1 $2 or newer (found: ${3:-none}): $4"
    unsuitable="$unsuitable $1"
}

have() { command -v "$1"; }
compilers() { have cc && have c++ && have strip; }
certificates() { test -f /etc/ssl/certs/ca-certificates.crt; }
python_venv() { python3 -c 'import ensurepip, venv'; }
containerd_and_client() { containerd --version && ctr --version; }
network_plugins() { test -e /usr/lib/cni/ptp || test -e /opt/cni/bin/ptp; }

# It runs in images without libraries.
busybox_static() { /bin/busybox true && ! ldd /bin/busybox; }

# Debian keeps the programs of the server out of PATH, in a folder per version.
postgresql() {
    have psql || return 1
    for initdb in /usr/lib/postgresql/*/bin/initdb; do
        if test -x "$initdb" && test -x "${initdb%initdb}postgres"; then
            return
        fi
    done
    have initdb && have postgres
}

find_missing() {
    missing=
    need build-essential "C and C++ compilers, strip" compilers
    need ca-certificates "certificates in the image of the relay" certificates
    need git "sources and changes" git --version
    need curl "scripts of the S3 example" curl --version
    need python3 "tools of the parts api and aws" python3 --version
    need python3-venv "tools of the parts api and aws" python_venv
    need default-jre-headless "DynamoDB Local" java -version
    need maven "downloads DynamoDB Local" mvn --version
    need busybox-static "images for tests" busybox_static
    need podman "runs scripts as containers" podman --version
    need runc "starts containers" runc --version
    need postgresql "server of the database example" postgresql
    need containerd "runs the containers of the cluster" containerd_and_client
    need containernetworking-plugins "networks of pods" network_plugins
    need nftables "addresses of services" nft --version
    need iproute2 "links of the cluster" ip -V
    need debootstrap "image of Debian" debootstrap --version
}

find_unsuitable() {
    unsuitable=
    rust=$(rustc --version 2>/dev/null | cut -d ' ' -f 2) || rust=
    need_version Rust "$RUST" "$rust" "install it with rustup (https://rustup.rs)"
    if [ -n "$rust" ] && ! { cargo clippy --version && cargo fmt --version; } >/dev/null 2>&1; then
        echo "missing: clippy or rustfmt: rustup component add clippy rustfmt"
        unsuitable="$unsuitable clippy/rustfmt"
    fi
    go=$(go env GOVERSION 2>/dev/null) || go=
    need_version Go "$GO" "${go#go}" "install it from https://go.dev/dl; it builds Kubernetes, helm and kro"
    python=$(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null) || python=
    need_version Python "$PYTHON" "$python" "install one that PATH finds first as python3, with venv"
}

# Runs apt-get as root.
apt() {
    # A machine that has just started holds the lock for a minute.
    set -- env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 "$@"
    if [ "$(id -u)" -ne 0 ]; then
        set -- sudo "$@"
    fi
    echo "+ $*"
    "$@"
}

install_missing() {
    if ! have apt-get >/dev/null; then
        echo "error: there is no apt-get: install$missing by hand" >&2
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ] && ! have sudo >/dev/null; then
        echo "error: apt-get needs root or sudo: run this as root" >&2
        exit 1
    fi
    apt update --quiet
    # The names have no spaces, and each is an argument of its own.
    # shellcheck disable=SC2086
    apt install --quiet --yes --no-install-recommends $missing
    find_missing
}

case "$#:${1-}" in
    0:) check=no ;;
    1:--check) check=yes ;;
    1:-h | 1:--help)
        sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        echo "usage: $0 [--check]" >&2
        exit 2
        ;;
esac

find_missing
if [ -n "$missing" ] && [ "$check" = no ]; then
    install_missing
fi
find_unsuitable
if [ -n "$missing$unsuitable" ]; then
    echo "not complete, missing:$missing$unsuitable"
    exit 1
fi
echo "complete: nothing is missing"
