#!/bin/sh
# Installs by apt the Debian packages that the parts of `cargo xtask verify` need. Rust and Go come from elsewhere.
#
#   infra/dev/setup.sh           installs the packages
#   infra/dev/setup.sh --check   lists the packages that are not installed, and fails if there are any
#
# Each part installs its own packages as well. After this script a part needs no rights to install.
set -eu

# Names as in infra/xtask/src/packages.rs, whose test compares them; and the tools that Rust builds with.
packages="
    build-essential ca-certificates git python3
    busybox-static containerd containernetworking-plugins curl debootstrap default-jre-headless iproute2
    maven nftables podman postgresql python3-venv runc
"

case "${1-}" in
    "") ;;
    --check)
        missing=
        for package in $packages; do
            dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
        done
        echo "missing:${missing:- none}"
        test -z "$missing"
        exit
        ;;
    *)
        echo "usage: $0 [--check]" >&2
        exit 2
        ;;
esac

as_root=
test "$(id -u)" -eq 0 || as_root=sudo
$as_root apt-get update --quiet
# Each name is an argument of its own.
# shellcheck disable=SC2086
$as_root apt-get install --quiet --yes --no-install-recommends $packages
rustc --version || echo "install Rust 1.95 or newer: https://rustup.rs"
go version || echo "install Go 1.26 or newer, which builds Kubernetes, helm and kro: https://go.dev/dl"
