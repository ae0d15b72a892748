# The cache of programs and images. It is kept after `cargo clean` and shared by clones. Other scripts read this file.

# Prints the path of a name in a folder. Makes it with a command if it is missing. The command gets a temporary path, which
# is renamed when it is complete. Other processes wait.
cached() {
    folder=$1 made_name=$2
    shift 2
    if [ ! -e "$folder/$made_name" ]; then
        mkdir -p "$folder"
        exec 9>>"$folder/lock"
        if ! flock --nonblock 9; then
            echo "another process builds programs of a cluster; waiting for it" >&2
            flock 9
        fi
        # The process that held the lock may have made it.
        if [ ! -e "$folder/$made_name" ]; then
            part=$folder/$made_name.part began=$(date +%s)
            rm -rf "$part"
            "$@" "$part" >&2
            mv "$part" "$folder/$made_name"
            echo "  $made_name: $(($(date +%s) - began)) s" >&2
        fi
        exec 9>&-
    fi
    echo "$folder/$made_name"
}

# Runs a command that needs the network, up to five times, with growing pauses.
retry() {
    attempt=1
    until "$@"; do
        [ "$attempt" -lt 5 ] || return 1
        echo "\`$*\` failed; attempt $attempt of 5" >&2
        sleep $((attempt * 5))
        attempt=$((attempt + 1))
    done
}

# Prints 16 hexadecimal digits of a SHA-256 of standard input.
digest() {
    sha256sum | cut -c 1-16
}
