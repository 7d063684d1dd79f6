#!/bin/sh
# run.sh BUILD CMAKE GENERATOR COMPILER - installs BUILD into a fresh prefix, moves the prefix, and builds and runs a
# program against it in two ways, find_package and pkg-config. The modules must come from that prefix, and
# neither from the build tree nor from where it was configured to be installed.
set -eu
build=$1 cmake=$2 generator=$3 compiler=$4
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
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
for file in include/mortise/mortise.h include/mortise/driver.h share/man/man1/mortise.1 \
    share/bash-completion/completions/mortise; do
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

"$cmake" -S "$here/consumer" -B "$work/consumer" -G "$generator" \
    -DCMAKE_C_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" >"$log" 2>&1 || fail "find_package(Mortise) failed"
"$cmake" --build "$work/consumer" >"$log" 2>&1 || fail "the consumer does not build"
consumer "$work/consumer/consumer"

# The flags of pkg-config are words for a shell: a space in the prefix is escaped in them.
flags=$(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config --cflags --libs mortise) || fail "pkg-config failed"
eval "\"\$compiler\" \"\$here/consumer/consumer.c\" -o \"\$work/by-pkg-config\" $flags" >"$log" 2>&1 ||
    fail "the consumer does not build with: $flags"
LD_LIBRARY_PATH=$libdir consumer "$work/by-pkg-config"
