#!/bin/sh
# run.sh BUILD CPACK COMPILER DRIVER… - makes the Debian packages of BUILD, has lintian look at them, compares what the
# library exports with packaging/debian/symbols, and installs and uses them by use.sh: in a root of its own that is
# laid over this machine's, where the kernel lets us make one, else in a folder.
set -eu
build=$1 cpack=$2 compiler=$3
shift 3
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-packages.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
log=$work/log

fail() {
    cat "$log" >&2
    printf 'packages: %s\n' "$1" >&2
    exit 1
}

(cd -- "$build" && "$cpack" -B "$work/debs") >"$log" 2>&1 || fail "cpack failed"
rm -rf -- "$work/debs/_CPack_Packages"

# as they should be split, and no others
{
    printf '%s\n' libmortise0 libmortise-dev mortise mortise-plugins mortise-conformance
    [ ! -x "$build/bench/mortise-bench-digest" ] || echo mortise-bench
    for driver in "$@"; do
        echo "mortise-driver-$driver"
    done
} | sort >"$work/wanted"
for deb in "$work"/debs/*.deb; do
    dpkg-deb -f "$deb" Package
done | sort >"$work/made"
diff "$work/wanted" "$work/made" >"$log" || fail "the packages are not those that should be"

as_root=''
[ "$(id -u)" -ne 0 ] || as_root=--allow-root
lintian $as_root --no-cfg --fail-on error "$work"/debs/*.deb >"$log" 2>&1 || fail "lintian found errors"

# The ABI by name: a symbol that is new must be entered, one that is gone needs another soname.
mkdir -p "$work/abi/debian"
printf 'Source: mortise\n\nPackage: libmortise0\nArchitecture: any\n' >"$work/abi/debian/control"
dpkg-deb -x "$work"/debs/libmortise0_*.deb "$work/abi/library"
version=$(dpkg-deb -f "$work"/debs/libmortise0_*.deb Version)
(cd -- "$work/abi" && dpkg-gensymbols -plibmortise0 "-v$version" -c4 -Plibrary -Onew \
    "-I$here/../../packaging/debian/symbols") >"$log" 2>&1 || fail "packaging/debian/symbols is not what the library exports"
dpkg-deb -e "$work"/debs/libmortise0_*.deb "$work/abi/in"
[ -s "$work/abi/in/symbols" ] && [ -s "$work/abi/in/shlibs" ] || fail "libmortise0 ships no symbols or shlibs"

# What the packages use must be declared: each names the library by its very version.
for deb in "$work"/debs/*.deb; do
    case $(dpkg-deb -f "$deb" Package) in
    libmortise0) continue ;;
    esac
    dpkg-deb -f "$deb" Depends | grep -q -F "libmortise0 (= $version)" || fail "$deb does not depend on libmortise0"
done

cp -- "$here/use.sh" "$here/../install/consumer/consumer.c" "$work/"
# in_root COMMAND…: runs it in a root whose /usr, /var and /etc are its own, and vanish with it. Root needs no user
# namespace for that (and may have no overlay in one); others do.
in_root() {
    namespaces=-rm
    [ "$(id -u)" -ne 0 ] || namespaces=-m
    unshare $namespaces sh -eu -c '
        over=$1
        shift
        mount -t tmpfs tmpfs "$over"
        mkdir "$over/upper" "$over/work" "$over/root"
        mount -t overlay overlay -o "lowerdir=/,upperdir=$over/upper,workdir=$over/work" "$over/root"
        for folder in dev proc; do
            mount --rbind "/$folder" "$over/root/$folder"
        done
        exec chroot "$over/root" "$@"
    ' sh "$work/over" "$@"
}

mkdir "$work/over"
if in_root true >/dev/null 2>&1; then
    how=root
    in_root sh "$work/use.sh" root "$work" "$compiler" >"$log" 2>&1 ||
        fail "installed in a root of its own, they cannot be used"
else
    how=folder
    sh "$work/use.sh" folder "$work" "$compiler" >"$log" 2>&1 || fail "unpacked in a folder, they cannot be used"
fi
echo "installed and used in a $how"
