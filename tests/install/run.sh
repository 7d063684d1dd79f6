#!/bin/sh
# run.sh BUILD CMAKE GENERATOR COMPILER C++COMPILER - installs BUILD into a fresh prefix, moves the prefix, copies two
# projects that use Mortise out of the tree, and builds and runs them against that prefix:
# - consumer/ (a program in C, one in C++) by find_package and by pkg-config. The modules must come from that prefix, and
#   neither from the build tree nor from where it was configured to be installed.
# - examples/driver-skeleton with the installed headers alone and the commands of docs/driver-guide.md as printed:
#   installed, loaded by name, and tested with the installed conformance suite.
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

"$cmake" --install "$build" --prefix "$work/gone" >"$log" 2>&1 || fail "cmake --install failed"
"$cmake" --build "$build" --target uninstall >"$log" 2>&1 || fail "the target uninstall failed"
[ -z "$(find "$work/gone" ! -type d)" ] || fail "the target uninstall leaves $(find "$work/gone" ! -type d | head -n 1)"
"$cmake" --install "$build" --prefix "$work/first" >"$log" 2>&1 || fail "cmake --install failed"
! grep -q -i warning "$log" || fail "cmake --install warns"
mv "$work/first" "$work/prefix"
prefix=$work/prefix

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:[A-Z]*=//p' "$build/CMakeCache.txt")
# Before 1.0 another minor version may be another ABI: it has another soname, as find_package takes no other (below).
case $version in
0.*) soname=libmortise.so.${version%.*} ;;
*) soname=libmortise.so.${version%%.*} ;;
esac
library=$(find "$prefix" -name "$soname")
[ -L "$library" ] || fail "no link $soname"
libdir=$(dirname "$library")
# The system's config is where the documents say, whatever the prefix.
documented=$(sed -n 's/^set(MORTISE_CONFIG_DIR "\([^"]*\)".*/\1/p' "$root/CMakeLists.txt")/mortise.conf
for document in docs/install.md docs/man/mortise.conf.5 docs/recipes.md; do
    grep -q -F -e "$documented" "$root/$document" || fail "$document does not name $documented"
done
config=$(sed -n 's/^MORTISE_CONFIG_DIR:[A-Z]*=//p' "$build/CMakeCache.txt")/mortise.conf
tr '\0' '\n' <"$library" | grep -a -x -q -F -e "$config" || fail "the library does not look for $config"
for file in include/mortise/mortise.h include/mortise/driver.h include/mortise/witness.h include/mortise/mortise.hpp include/mortise/sync.hpp \
    share/man/man1/mortise.1 share/man/man1/mortise-run.1 share/man/man1/mortise-witness.1 \
    lib/systemd/system/mortise-witness.socket lib/systemd/system/mortise-witness.service \
    lib/systemd/user/mortise-witness.socket lib/systemd/user/mortise-witness.service \
    share/man/man1/mortise-conformance.1 share/man/man3/libmortise.3 share/man/man5/mortise.conf.5 share/bash-completion/completions/mortise; do
    [ -f "$prefix/$file" ] || fail "$file was not installed"
done
[ ! -x "$build/bin/mortise-serve" ] || for file in bin/mortise-serve share/man/man1/mortise-serve.1 lib/systemd/system/mortise-serve.socket \
    lib/systemd/system/mortise-serve.service; do
    [ -f "$prefix/$file" ] || fail "$file was not installed"
done
# The prefix was moved after it was installed: the units name the command where it was then, and not where the build meant it to be.
find "$prefix/lib/systemd" -name '*.service' -exec sed -n 's/^ExecStart=//p' {} + | sed 's/ [a-z]*$//' | sort -u >"$log"
[ "$(cat "$log")" = "\"$work/first/bin/mortise\"" ] || fail "the units start another command than the installed one"
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
for wanted in 0.1 0.3 1.0; do
    ! configure consumer "-DWANTED=$wanted" || fail "version $wanted was found"
    grep -q 'compatible with requested version' "$log" || fail "version $wanted was refused for another reason"
done

# The library and its headers are enough to build a program: a driver may be on another machine.
for component in library dev; do
    "$cmake" --install "$build" --prefix "$work/alone" --component "$component" >"$log" 2>&1 || fail "cmake --install --component failed"
done
configure consumer -UMortise_DIR -UWANTED "-DCMAKE_PREFIX_PATH=$work/alone" -DMODULES=OFF ||
    fail "find_package(Mortise) failed where no driver is installed"
grep -q -F "Mortise_DIR:PATH=$work/alone/" "$work/consumer/build/CMakeCache.txt" || fail "find_package(Mortise) found another Mortise"

# The flags of pkg-config are words for a shell: a space in the prefix is escaped in them.
pkg_config() {
    PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config "$@"
}
flags=$(pkg_config --cflags --libs mortise) || fail "pkg-config failed"
by_pkg_config() {
    eval "\"\$1\" \"\$work/consumer/$2\" -o \"\$work/by-pkg-config\" $flags" >"$log" 2>&1 ||
        fail "$2 does not build with: $flags"
    LD_LIBRARY_PATH=$libdir consumer "$work/by-pkg-config"
}
by_pkg_config "$compiler" consumer.c
# In C++ the flags have to find the headers and to link; to compile all of them once more takes longer than anything else here.
headers=$(pkg_config --cflags mortise)
eval "\"\$cxx\" -std=c++17 -Werror -E \"\$work/consumer/consumer_cxx.cpp\" -o \"\$work/headers\" $headers" >"$log" 2>&1 ||
    fail "mortise.hpp is not found with: $headers"
by_pkg_config "$cxx" build/CMakeFiles/consumer_cxx.dir/consumer_cxx.cpp.o
version=$("$prefix/bin/mortise" --version | sed -n '1s/^[^0-9]*\([0-9.]*\).*/\1/p')
[ "$(pkg_config --modversion mortise)" = "$version" ] || fail "pkg-config says another version than mortise"
told=''
eval "told=$(pkg_config --variable=moduledir mortise)"
[ "$(cd -- "$told" && pwd -P)" = "$(cd -- "$libdir/mortise" && pwd -P)" ] ||
    fail "pkg-config says another folder of modules"

# A driver of somebody else's. Its folder is not the one that it was built in, and has no header of ours. Where the prefix
# is, is in the environment; it is ours, so nobody has to become root. The suite takes smaller crowds.
mkdir "$work/bin"
printf '#!/bin/sh\nexec "$@"\n' >"$work/bin/sudo"
chmod +x "$work/bin/sudo"
mkdir "$work/source"
ln -s "$root/examples" "$work/source/examples"
sed -n 's/^    \([a-z].*\)/\1/p' "$root/docs/driver-guide.md" |
    sed 's/  *# .*//; s/^mortise-conformance .*/& ttl=1000 names=500 waiters=200/' >"$work/guide"
grep -q '^cmake --build' "$work/guide" && [ "$(grep -c '^mortise-conformance' "$work/guide")" = 2 ] ||
    fail "docs/driver-guide.md has other commands"
(
    cd -- "$work/source"
    PATH=$work/bin:$prefix/bin:$PATH CMAKE_PREFIX_PATH=$prefix CMAKE_GENERATOR=$generator CC=$compiler CXX=$cxx
    export PATH CMAKE_PREFIX_PATH CMAKE_GENERATOR CC CXX
    exec sh -ex "$work/guide"
) >"$log" 2>&1 || fail "a command of docs/driver-guide.md failed"
grep -q '^server.*host:port' "$log" || fail "the skeleton's options are not shown"
[ -f "$libdir/mortise/skeleton.so" ] || fail "the skeleton was installed elsewhere"
skeleton=$work/source/mydriver suite=$prefix/bin/mortise-conformance
# It is copied: so it does not take the server at its word, nor into its messages.
rude() {
    kind=$1
    shift
    python3 "$here/rude.py" "$kind" "$prefix/bin/mortise" \
        -C 'skeleton://127.0.0.1:{port}?timeout=800ms&unreachable_timeout=1s&close_timeout=100ms' "$@" >"$log" 2>&1
}
! rude words run nightly -- true || fail "the skeleton takes any word for a yes"
grep -q -F 'the server says "\x1b[31mNOxxx' "$log" || fail "the skeleton does not say what the server said, or raw"
! grep -q "$(printf '\033')" "$log" && ! grep -q '.\{1200\}' "$log" || fail "the server's words are in a message as they are"
! rude flood run -n nightly -- true || fail "the skeleton takes a flood for a yes"
grep -q 'a line without an end' "$log" || fail "the skeleton does not see that a line never ends"
rude odd status nightly && grep -q '^nightly.*held' "$log" || fail "the skeleton does not understand a holder with a wrong note"
! grep -q AAAA "$log" || fail "the skeleton reads on behind half of a hexadecimal number"
# Renewals are given up before an answer is late (a sixth of the ttl, 800 ms); the connection is given up nevertheless.
rude mute run --ttl=4500ms nightly -- sleep 6 || fail "the skeleton keeps a connection that is silent until its lease is lost"
# A resolver that does not answer has one thread, however often the skeleton tries.
"$compiler" -shared -fPIC -o "$work/slow_names.so" "$here/slow_names.c" >"$log" 2>&1 || fail "slow_names.c does not build"
! (
    cd -- "$work" # there may be no space in LD_PRELOAD
    LD_PRELOAD=./slow_names.so MORTISE_LOOK_UPS=look_ups exec "$prefix/bin/mortise" \
        -C 'skeleton://names.test:1?timeout=50ms&unreachable_timeout=1s&close_timeout=100ms' run nightly -- true
) >"$log" 2>&1 || fail "the skeleton has found a name that nobody knows"
[ "$(cat "$work/look_ups")" = x ] || fail "the skeleton asks a silent resolver again and again, in a thread each: $(cat "$work/look_ups")"
# That proves something: a skeleton that gives tokens which do not grow must fail it.
sed -i 's/last_token = max(last_token + 1, floor)/last_token = max(last_token - 1, floor)/' "$skeleton/server.py"
! "$suite" "$skeleton/skeleton.conf" "hooks=$skeleton/hooks.sh" only=token >"$log" 2>&1 ||
    fail "the conformance suite passes a driver whose tokens do not grow"
