#!/bin/sh
# Builds a set of programs with Go, with the versions and checksums of `infra/cluster/SET/go.{mod,sum}`.
#
#   programs.sh CACHE SET     prints the folder of the programs; builds them unless the cache has them from the same
#                             sources and the same Go
set -eu
cache=$1 set=$2
here=$(realpath "$(dirname "$0")")
. "$here/cache.sh"
cd "$here/$set"
# Without cgo, the programs run in any image.
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false

# The module there requires the newest version, so a Go that downloads toolchains selects this version.
version=$(cd "$here/kubernetes" && go env GOVERSION) || {
    echo "$0: Kubernetes is built with Go: install Go 1.26 (https://go.dev/dl)" >&2
    exit 1
}

# Fails if a module cannot be fetched.
fetch() {
    nice -n 10 go list -mod=readonly -deps -f '{{if .Error}}{{.Error}}{{end}}' "$1"
}

build() {
    to=$1 flags='-s -w' package=tool
    echo "building $set with $version"
    mkdir -p "$to"
    test ! -e main.go || package=.
    if ! retry fetch "$package"; then
        echo "$0: Go needs a module proxy" >&2
        exit 1
    fi
    if [ "$set" = kubernetes ]; then
        # Servers and clients compare versions.
        release=$(go list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes)
        flags="$flags -X k8s.io/component-base/version.gitVersion=$release"
    fi
    nice -n 10 go build -mod=readonly -trimpath -ldflags "$flags" -o "$to/" "$package"
    if [ "$set" = kro ]; then
        cp -r "$(go list -m -f '{{.Dir}}' github.com/kubernetes-sigs/kro)/helm/crds" "$to/crds"
    fi
}

sources=$({ echo "$version"; sha256sum -- *; } | digest)
cached "$cache" "$set-$sources" build
