#!/bin/sh
# run.sh BUILD CPACK COMPILER DRIVER… - makes the Debian packages of BUILD with README's own line, checks them with lintian,
# compares what the library exports with packaging/debian/symbols, and what the packages need with what they declare, and
# looks for the hardening of a release build. Then use.sh installs, uses and purges them, in a root directory of its own if
# the kernel permits one. Otherwise it uses them in a directory, which proves less: with MORTISE_REQUIRE_ALL that is a
# failure, except for an ordinary user.
set -eu
build=$1 cpack=$2 compiler=$3
shift 3
PATH=$PATH:/usr/sbin:/sbin # ldconfig
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-packages.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
log=$work/log

fail() {
    cat "$log" >&2
    printf 'packages: %s\n' "$1" >&2
    exit 1
}

. "$here/../root.sh"
how=root
if ! in_root "$work" true >"$log" 2>&1; then
    how=folder
    [ "${MORTISE_REQUIRE_ALL:-0}" != 1 ] || [ "$(id -u)" -ne 0 ] || fail "no root of its own can be made here"
fi

mkdir "$work/debs" "$work/tree"
ln -s "$build" "$work/tree/build-quickstart"
line=$(sed -n 's/^    \((cd build-quickstart .*cpack)\) .*/\1/p' "$here/../../README.md")
[ -n "$line" ] || fail "README.md has no line that makes packages"
if [ "$how" = root ]; then # the build there is a copy
    PATH=$(dirname "$cpack"):$PATH in_root "$work" sh -euc "rm -f $build/*.deb; cd '$work/tree'; $line; mv build-quickstart/*.deb '$work/debs'" \
        >"$log" 2>&1 || fail "README's line failed: $line"
else
    (cd -- "$build" && "$cpack" -B "$work/debs") >"$log" 2>&1 || fail "cpack failed"
    rm -rf -- "$work/debs/_CPack_Packages"
fi

# as they should be split, and no others; the library's is named by its soname, as Debian does
soname=$(objdump -p "$build/lib/libmortise.so" | sed -n 's/^ *SONAME *//p')
library=$(printf '%s\n' "$soname" | sed 's/\.so\.//')
{
    printf '%s\n' "$library" libmortise-dev mortise mortise-plugins mortise-conformance
    [ ! -x "$build/bench/mortise-bench-digest" ] || echo mortise-bench
    [ ! -x "$build/bin/mortise-serve" ] || echo mortise-serve
    ! grep -q '^MORTISE_API:[A-Z]*=ON' "$build/CMakeCache.txt" || echo libmortise-doc
    for driver in "$@"; do
        echo "mortise-driver-$driver"
    done
} | sort >"$work/wanted"
for deb in "$work"/debs/*.deb; do
    dpkg-deb -f "$deb" Package
done | sort >"$work/made"
diff "$work/wanted" "$work/made" >"$log" || fail "the packages are not those that should be"

# Without these programs cpack would fail with a riddle, or leave out what the packages depend on.
mkdir "$work/nothing"
cmake=$(dirname "$cpack")/cmake
if PATH=$work/nothing "$cmake" "-DCPACK_TEMPORARY_INSTALL_DIRECTORY=$work/nothing" -P "$here/../../packaging/debian/finish.cmake" \
    >"$log" 2>&1; then
    fail "packages are made without file and dpkg-shlibdeps"
fi
grep -q 'sudo apt-get install file' "$log" || fail "it is not said what cpack needs"

as_root=''
[ "$(id -u)" -ne 0 ] || as_root=--allow-root
# The drivers' packages are made alike, but for sqlite's, which has a script: by day lintian looks at that one and one more.
mkdir "$work/looked-at"
ln -s "$work"/debs/*.deb "$work/looked-at"
[ "${MORTISE_NIGHTLY:-0}" = 1 ] || find "$work/looked-at" -name 'mortise-driver-*' ! -name '*-sqlite_*' ! -name '*-redis_*' -delete
lintian $as_root --no-cfg --fail-on error,warning "$work"/looked-at/*.deb >"$log" 2>&1 || fail "lintian found errors or warnings"

# The ABI by name: a symbol that is new must be entered, one that is gone needs another soname.
mkdir -p "$work/abi/debian"
printf 'Source: mortise\n\nPackage: %s\nArchitecture: any\n' "$library" >"$work/abi/debian/control"
dpkg-deb -x "$work/debs/$library"_*.deb "$work/abi/library"
version=$(dpkg-deb -f "$work/debs/$library"_*.deb Version)
(cd -- "$work/abi" && dpkg-gensymbols "-p$library" "-v$version" -c4 -Plibrary -Onew \
    "-I$here/../../packaging/debian/symbols") >"$log" 2>&1 || fail "packaging/debian/symbols is not what the library exports"
dpkg-deb -e "$work/debs/$library"_*.deb "$work/abi/in"
[ -s "$work/abi/in/symbols" ] && [ -s "$work/abi/in/shlibs" ] || fail "$library ships no symbols or shlibs"

# What the packages use must be declared, which a machine that has it all does not show: each names the library by its very
# version, and the package of each library that a file of it is linked with, as dpkg knows it.
mkdir "$work/package-of"
package_of() { # SONAME; /lib may be another name of /usr/lib. dpkg reads the lists of all packages each time: it is asked once
    if [ ! -f "$work/package-of/$1" ]; then
        file=$(ldconfig -p | awk -v name="$1" '$1 == name { print $NF; exit }')
        for known in "$file" "/usr$file" "${file#/usr}" "$(readlink -f "$file")"; do
            dpkg -S "$known" 2>/dev/null | head -n 1 | cut -d : -f 1 | grep . && break
        done >"$work/package-of/$1" || echo "of-$1-which-dpkg-does-not-know" >"$work/package-of/$1"
    fi
    cat "$work/package-of/$1"
}
triplet=$(dpkg-architecture -q DEB_HOST_MULTIARCH)
for deb in "$work"/debs/*.deb; do
    name=$(dpkg-deb -f "$deb" Package)
    dpkg-deb -f "$deb" Depends | tr ',' '\n' | sed 's/^ *//; s/ .*//' >"$work/declared"
    mkdir "$work/files"
    dpkg-deb -x "$deb" "$work/files"
    find "$work/files" -type f -exec sh -c 'readelf -d "$@" 2>/dev/null' sh {} + | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        sort -u >"$work/needed"
    while read -r linked; do
        case $linked in
        "$soname") wanted=$library ;;
        *) wanted=$(package_of "$linked") ;;
        esac
        grep -q -x -F -e "$wanted" "$work/declared" || fail "$name needs $linked, and does not depend on $wanted"
    done <"$work/needed"
    # A debug build has no such flags, and one with a sanitizer cannot have them.
    if [ -s "$work/needed" ] && grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=Release' "$build/CMakeCache.txt" &&
        ! grep -q '^MORTISE_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt"; then
        sh "$here/hardening.sh" "$work/files" >"$log" 2>&1 || fail "$name is not hardened"
    fi
    find "$work/files" -type f -perm -u+x -exec sed -n -s '1s/^#!.*python3.*/python3/p' {} + >"$work/scripts"
    case $name in
    *-dev) ;; # an example is no program of the package's
    *) [ ! -s "$work/scripts" ] || grep -q -x python3 "$work/declared" || fail "$name has a script, and does not depend on python3" ;;
    esac
    # pages that send the reader to others
    pages=$work/files/usr/share/doc/$name
    for pair in performance-tables.md:performance.md upgrading.md:changelog.gz; do
        [ ! -e "$pages/${pair%:*}" ] || [ -e "$pages/${pair#*:}" ] || fail "$name has ${pair%:*}, and not ${pair#*:}"
    done
    # several architectures side by side: what is of one lies in its folder
    find "$work/files/usr/lib" -maxdepth 1 -mindepth 1 ! -name "$triplet" >"$log" 2>&1 || :
    case $(dpkg-deb -f "$deb" Multi-Arch) in
    same) grep -q "^$work" "$log" && fail "$name is Multi-Arch: same, and has files beside usr/lib/$triplet" ;;
    foreign) ;;
    *) fail "$name says nothing of Multi-Arch" ;;
    esac
    rm -rf -- "$work/files"
    [ "$name" = "$library" ] || [ "$name" = libmortise-doc ] || dpkg-deb -f "$deb" Depends | grep -q -F "$library (= $version)" ||
        fail "$name does not depend on this $library"
    [ "$name" != "$library" ] || [ -s "$work/needed" ] || fail "nothing was found that $library needs"
done

config_dir=$(sed -n 's/^MORTISE_CONFIG_DIR:[A-Z]*=//p' "$build/CMakeCache.txt")
cp -- "$here/use.sh" "$here/../install/consumer/consumer.c" "$work/"
if [ "$how" = root ]; then
    in_root "$work" sh "$work/use.sh" root "$work" "$compiler" "$config_dir" >"$log" 2>&1 ||
        fail "installed in a root of its own, they cannot be used"
else
    sh "$work/use.sh" folder "$work" "$compiler" "$config_dir" >"$log" 2>&1 ||
        fail "unpacked in a folder, they cannot be used"
fi
echo "installed and used in a $how"
