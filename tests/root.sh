# root.sh - a root directory of its own for a test, an overlay over this machine's: whatever is installed, written or removed
# there disappears with it. Sourced.
# shellcheck shell=sh

# in_root FOLDER COMMAND…: runs COMMAND there; FOLDER, which is the caller's, is this machine's there too, and the trees
# below $MORTISE_SOURCE_DIR and $MORTISE_BUILD_DIR can be seen. Root needs no user namespace for that; others do, and are
# mostly refused: in one the kernel lays nothing over a root that has other file systems in it. Fails then.
in_root() {
    namespaces=-rm
    [ "$(id -u)" -ne 0 ] || namespaces=-m
    mkdir -p -- "$1/over"
    unshare $namespaces sh -eu -c '
        shared=$1 over=$1/over
        shift
        root=$over/root count=0
        # lay FOLDER: over itself
        lay() {
            count=$((count + 1))
            mkdir -p "$over/upper$count" "$over/work$count" "$root$1"
            mount -t overlay overlay -o "lowerdir=$1,upperdir=$over/upper$count,workdir=$over/work$count" "$root$1"
        }
        mount -t tmpfs tmpfs "$over"
        lay /
        for folder in dev proc; do
            mount --rbind "/$folder" "$root/$folder"
        done
        # other file systems do not come with it
        [ "$(stat -c %d /tmp)" = "$(stat -c %d /)" ] || mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
        for folder in "$MORTISE_SOURCE_DIR" "$MORTISE_BUILD_DIR"; do
            [ "$(stat -c %d "$folder")" = "$(stat -c %d /)" ] || lay "$folder"
        done
        mkdir -p "$root$shared"
        mount --bind "$shared" "$root$shared"
        exec chroot "$root" "$@"
    ' sh "$@"
}
