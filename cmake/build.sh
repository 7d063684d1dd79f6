# build.sh - configures and builds one tree, quietly where all is well. Sourced by examples/quickstart.sh
# and tests/run.sh; needs $root, the top of the source tree.
# shellcheck shell=sh disable=SC2154 # root

# build_tree FOLDER PRESET [-DNAME=VALUE …]: what is printed goes to FOLDER/build.log; its end is shown if
# that fails.
build_tree() {
    tree=$1 preset=$2
    shift 2
    mkdir -p -- "$tree"
    build_forget_foreign "$tree"
    # The generator of a tree cannot be changed later.
    if [ ! -f "$tree/CMakeCache.txt" ] && command -v ninja >/dev/null 2>&1; then
        set -- -G Ninja "$@"
    fi
    if ! { (cd -- "$root" && cmake --preset "$preset" -B "$tree" "$@") &&
        cmake --build "$tree" --parallel "$(getconf _NPROCESSORS_ONLN)"; } >"$tree/build.log" 2>&1; then
        tail -n 40 "$tree/build.log" >&2
        echo "That failed; all of it is in $tree/build.log" >&2
        return 1
    fi
}

# A tree that was configured elsewhere (the sources were moved or copied with it) is configured anew.
build_forget_foreign() {
    [ -f "$1/CMakeCache.txt" ] || return 0
    if ! grep -q -x -F "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$1/CMakeCache.txt" ||
        ! grep -q -x -F "CMAKE_CACHEFILE_DIR:INTERNAL=$1" "$1/CMakeCache.txt"; then
        rm -rf -- "$1/CMakeCache.txt" "$1/CMakeFiles"
    fi
}
