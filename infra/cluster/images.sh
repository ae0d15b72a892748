#!/bin/sh
# Images without a registry, from folders and programs of this machine.
#
#   images.sh debian CACHE NAME                       prints the archive of an image of Debian, which debootstrap makes once
#   images.sh busybox ROOT                            writes Debian's static busybox and links for all of its tools
#   images.sh program PROGRAM NAME ROOT               writes a program by this name, with its libraries, and with
#                                                     certificates if it is dynamic
#   images.sh archive NAME ROOT ENTRYPOINT TO         writes an archive, in the format of `docker save`, of an image with
#                                                     one layer, the folder ROOT; ENTRYPOINT is a list in JSON
#   images.sh registry TO DEBIAN TERRAFORM            writes images in place of those that Signadot's plugins name, as
#                                                     the files of a registry, with the layer of the archive DEBIAN; the
#                                                     paths below TO are those of requests
set -eu
. "$(dirname "$0")/cache.sh"

fail() {
    echo "$0: $1" >&2
    exit 1
}

# Prints the digest of a file, as manifests have it.
file_digest() {
    echo "sha256:$(sha256sum <"$1" | cut -d ' ' -f 1)"
}

# Writes the content of a folder as a layer.
pack() {
    tar --create --numeric-owner --file "$2" --directory "$1" .
}

# Prints the configuration of an image with this entrypoint and layers of these digests.
config() {
    entrypoint=$1
    shift
    architecture=$(uname -m | sed 's/^x86_64$/amd64/; s/^aarch64$/arm64/')
    path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    printf '{"architecture":"%s","os":"linux",' "$architecture"
    printf '"config":{"Entrypoint":%s,"Env":["PATH=%s"]},' "$entrypoint" "$path"
    printf '"rootfs":{"type":"layers","diff_ids":[%s]},' "$(list '"%s"' "$@")"
    printf '"history":[%s]}' "$(list '{}' "$@")"
}

# Prints the values after the first, each in the format of the first, with commas between them.
list() {
    format=$1 comma=
    shift
    for value in "$@"; do
        # shellcheck disable=SC2059
        printf "$comma$format" "$value"
        comma=,
    done
}

debian() {
    name=$2 options='--variant=minbase --include=ca-certificates,curl,jq,postgresql-client,python3 bookworm'
    cached "$1" "debian-$(echo "$options" | digest).tar" debian_archive
}

debian_archive() {
    echo "building an image of Debian with debootstrap"
    root=$1.root
    retry bootstrap "$root"
    # Archives of installed packages, and files that are not used in an image without network.
    (cd "$root" && rm --recursive --force var/cache/apt var/lib/apt/lists usr/share/doc usr/share/locale)
    archive "$name" "$root" '[]' "$1"
    rm --recursive "$root"
}

bootstrap() {
    # An attempt that fails leaves a part of the folder.
    rm --recursive --force "$1"
    # Each option is an argument of its own.
    # shellcheck disable=SC2086
    debootstrap $options "$1" >/dev/null
}

busybox() {
    mkdir --parents "$1/bin" "$1/tmp"
    chmod 1777 "$1/tmp"
    cp /bin/busybox "$1/bin/busybox"
    for name in $(/bin/busybox --list); do
        test "$name" = busybox || ln --symbolic busybox "$1/bin/$name"
    done
}

program() {
    program=$1 name=$2 root=$3 certificates=/etc/ssl/certs/ca-certificates.crt
    rm --recursive --force "$root"
    mkdir --parents "$root"
    # `ldd` fails for static programs. These open no connections to servers outside of the cluster.
    libraries=$(ldd "$program" 2>/dev/null) || libraries=
    case $libraries in *"not found"*) fail "$program: $(echo "$libraries" | grep 'not found')" ;; esac
    libraries=$(echo "$libraries" | grep --only-matching '\(^\|[[:space:]]\)/[^[:space:]]*' || true)
    if [ -n "$libraries" ]; then
        test -f "$certificates" || fail "$certificates is missing: install ca-certificates"
        # shellcheck disable=SC2086
        cp --parents $libraries "$certificates" "$root"
    fi
    cp "$program" "$root/$name"
    # Without symbols, a development build shrinks to a tenth.
    strip "$root/$name"
}

archive() {
    name=$1 root=$2 entrypoint=$3 to=$4
    parts=$to.parts
    rm --recursive --force "$parts"
    mkdir --parents "$parts"
    pack "$root" "$parts/layer.tar"
    config "$entrypoint" "$(file_digest "$parts/layer.tar")" >"$parts/config.json"
    printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$name" >"$parts/manifest.json"
    tar --create --file "$to" --directory "$parts" manifest.json config.json layer.tar
    rm --recursive "$parts"
}

# Moves a file to the blobs of the registry. Prints its descriptor.
blob() {
    blob=$(file_digest "$1") size=$(wc -c <"$1")
    mv "$1" "$to/blobs/$blob"
    printf '{"mediaType":"application/vnd.oci.image.%s","digest":"%s","size":%s}' "$2" "$blob" "$size"
}

# Writes the manifest of an image with these layers, by tag and by digest.
image() {
    name=$1 tag=$2
    shift 2
    # The digest is the only word of a descriptor with this prefix.
    digests=$(echo "$@" | grep --only-matching 'sha256:[0-9a-f]*')
    # shellcheck disable=SC2086
    config '[]' $digests >"$to/config.json"
    config=$(blob "$to/config.json" config.v1+json)
    manifests=$to/v2/$name/manifests
    mkdir --parents "$manifests"
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}' \
        "$config" "$(list '%s' "$@")" >"$manifests/$tag"
    ln --symbolic "$tag" "$manifests/$(file_digest "$manifests/$tag")"
    ln --symbolic "$to/blobs" "$to/v2/$name/blobs"
}

registry() {
    mkdir --parents "$1/blobs"
    to=$(realpath "$1") tools=$(realpath "$(dirname "$0")/stand-ins/aws-cli")
    layer=$to/layer.tar type=layer.v1.tar
    tar --extract --file "$2" --directory "$to" layer.tar
    system=$(blob "$layer" "$type")
    pack "$tools" "$layer"
    aws=$(blob "$layer" "$type")
    mkdir --parents "$to/terraform/usr/local/bin"
    cp "$3" "$to/terraform/usr/local/bin/terraform"
    pack "$to/terraform" "$layer"
    rm --recursive "$to/terraform"
    terraform=$(blob "$layer" "$type")
    image library/ubuntu latest "$system"
    image library/python 3 "$system"
    image amazon/aws-cli latest "$system" "$aws"
    image hashicorp/terraform 1.4.2 "$system" "$terraform"
}

action=$1
shift
"$action" "$@"
