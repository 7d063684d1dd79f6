#!/bin/sh
# run.sh BUILD CMAKE GENERATOR COMPILER C++COMPILER - installs BUILD into a fresh prefix, moves the prefix, copies the
# projects of strangers out of the tree, and builds and runs them against that prefix:
# - consumer/ (a program in C, one in C++) by find_package and by pkg-config. The modules must come from that prefix, and
#   neither from the build tree nor from where it was configured to be installed.
# - examples/driver-skeleton by the installed headers alone; installed, loaded by name, and proved by the
#   installed conformance suite.
set -eu
build=$1 cmake=$2 generator=$3 compiler=$4 cxx=$5
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$here/../..
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise install.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
unset MORTISE_MODULE_PATH
log=$work/log

fail() {
    cat "$log" >&2
    printf 'install: %s\n' "$1" >&2
    exit 1
}

# consumer PROGRAM: runs it; its driver must be the moved prefix's.
consumer() {
    printed=$("$1" "sqlite:$work/locks.db") || fail "$1 failed"
    case $printed in
    "held $prefix/"*/mortise/sqlite.so) ;;
    *) fail "$1 printed \"$printed\", expected: held $prefix/…/mortise/sqlite.so" ;;
    esac
}

"$cmake" --install "$build" --prefix "$work/first" >"$log" 2>&1 || fail "cmake --install failed"
mv "$work/first" "$work/prefix"
prefix=$work/prefix

library=$(find "$prefix" -name 'libmortise.so.0')
[ -L "$library" ] || fail "no link libmortise.so.0"
libdir=$(dirname "$library")
for file in include/mortise/mortise.h include/mortise/driver.h include/mortise/mortise.hpp \
    share/man/man1/mortise.1 share/man/man1/mortise-run.1 \
    share/man/man1/mortise-conformance.1 share/man/man3/libmortise.3 share/man/man5/mortise.conf.5 share/bash-completion/completions/mortise; do
    [ -f "$prefix/$file" ] || fail "$file was not installed"
done
for alias in "$libdir"/mortise/*.so; do
    [ -f "$alias" ] || fail "$alias leads nowhere"
    [ ! -L "$alias" ] || case $(readlink "$alias") in
    */*) fail "$alias is not a relative link" ;;
    esac
done
[ -z "$(find "$prefix" -name 'sim.so')" ] || fail "a test module was installed"
"$prefix/bin/mortise" --version >>"$log" 2>&1 || fail "the installed command does not start"

# configure FOLDER [-D…]: a project that was copied to $work/FOLDER
configure() {
    folder=$1
    shift
    "$cmake" -S "$work/$folder" -B "$work/$folder/build" -G "$generator" -DCMAKE_C_COMPILER="$compiler" \
        -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$prefix" "$@" >"$log" 2>&1
}

cp -R "$here/consumer" "$work/consumer"
configure consumer || fail "find_package(Mortise) failed"
"$cmake" --build "$work/consumer/build" >"$log" 2>&1 || fail "the consumer does not build"
consumer "$work/consumer/build/consumer"
consumer "$work/consumer/build/consumer_cxx"
# Another minor version may be another API; and what is not there is not found.
for wanted in 0.2 1.0; do
    ! configure consumer "-DWANTED=$wanted" || fail "version $wanted was found"
    grep -q 'compatible with requested version' "$log" || fail "version $wanted was refused for another reason"
done

# The flags of pkg-config are words for a shell: a space in the prefix is escaped in them.
pkg_config() {
    PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config "$@"
}
flags=$(pkg_config --cflags --libs mortise) || fail "pkg-config failed"
by_pkg_config() {
    eval "\"\$1\" \"\$work/consumer/$2\" -o \"\$work/by-pkg-config\" $3 $flags" >"$log" 2>&1 ||
        fail "$2 does not build with: $flags"
    LD_LIBRARY_PATH=$libdir consumer "$work/by-pkg-config"
}
by_pkg_config "$compiler" consumer.c ''
by_pkg_config "$cxx" consumer_cxx.cpp -std=c++17
version=$("$prefix/bin/mortise" --version | sed -n '1s/^[^0-9]*\([0-9.]*\).*/\1/p')
[ "$(pkg_config --modversion mortise)" = "$version" ] || fail "pkg-config says another version than mortise"
eval "told=$(pkg_config --variable=moduledir mortise)"
[ "$(cd -- "$told" && pwd -P)" = "$(cd -- "$libdir/mortise" && pwd -P)" ] ||
    fail "pkg-config says another folder of modules"

# A driver of somebody else's. Its folder is not the one that it was built in, and has no header of ours.
cp -R "$root/examples/driver-skeleton" "$work/skeleton"
configure skeleton || fail "the skeleton does not find Mortise"
"$cmake" --build "$work/skeleton/build" >"$log" 2>&1 || fail "the skeleton does not build"
"$cmake" --install "$work/skeleton/build" >"$log" 2>&1 || fail "the skeleton cannot be installed"
[ -f "$libdir/mortise/skeleton.so" ] || fail "the skeleton was installed elsewhere"
"$prefix/bin/mortise" drivers skeleton --options >"$log" 2>&1 || fail "the skeleton does not load"
grep -q 'host:port' "$log" || fail "the skeleton's options are not shown"
suite=$prefix/bin/mortise-conformance
[ -x "$suite" ] || fail "the conformance suite was not installed"
"$suite" "$work/skeleton/skeleton.conf" "hooks=$work/skeleton/hooks.sh" can=freeze ttl=1000 \
    names=500 waiters=200 >"$log" 2>&1 || fail "the skeleton fails the conformance suite"
# That proves something: a skeleton that gives tokens which do not grow must fail it.
sed -i 's/last_token = max(last_token + 1, floor)/last_token = max(last_token - 1, floor)/' "$work/skeleton/server.py"
! "$suite" "$work/skeleton/skeleton.conf" "hooks=$work/skeleton/hooks.sh" only=token >"$log" 2>&1 ||
    fail "the conformance suite passes a driver whose tokens do not grow"
