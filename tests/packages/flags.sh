#!/bin/sh
# flags.sh CMAKE GENERATOR COMPILER - what a packager's flags may not change, and what they must. Looks at the commands for the
# compiler of a build with other flags than the presets'; compiles nothing.
set -eu
cmake=$1 generator=$2 compiler=$3
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-flags.XXXXXX")
trap 'rm -rf -- "$work"' EXIT

"$cmake" -S "$root" -B "$work/build" -G "$generator" -DCMAKE_C_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_C_FLAGS='-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3' \
    -DMORTISE_DRIVERS=sqlite -DMORTISE_TESTS=OFF -DMORTISE_EXAMPLES=OFF -DMORTISE_BENCH=OFF >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
grep -F '"command":' "$work/build/compile_commands.json" >"$work/commands"
grep -q -e ' -DNDEBUG ' "$work/commands" || {
    echo "CMake's RelWithDebInfo leaves asserts in: use another build type here" >&2
    exit 1
}
! grep -v -e ' -DNDEBUG .* -UNDEBUG ' "$work/commands" >&2 || {
    echo "these have no asserts" >&2
    exit 1
}
if grep -v -e ' -D_FORTIFY_SOURCE=3 ' "$work/commands" >&2 || grep -e '_FORTIFY_SOURCE=2' "$work/commands" >&2; then
    echo "these are not fortified as CMAKE_C_FLAGS says" >&2
    exit 1
fi
grep -q -x 'CMAKE_INSTALL_LIBDIR:PATH=lib' "$work/build/CMakeCache.txt" || {
    grep '^CMAKE_INSTALL_LIBDIR:' "$work/build/CMakeCache.txt" >&2
    echo "a relative CMAKE_INSTALL_LIBDIR is below the prefix, not below the current directory" >&2
    exit 1
}
echo "$(wc -l <"$work/commands") files keep their asserts"
