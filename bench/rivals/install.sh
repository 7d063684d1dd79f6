#!/bin/sh
# install.sh [FOLDER] - installs the rivals that mortise-bench compares with: Debian's packages by apt-get, those of
# JavaScript by npm into FOLDER/node_modules, Curator's adapter, compiled, into FOLDER/classes, and redis-plus-plus, from its
# source, into FOLDER/prefix. None is required: what cannot be installed is left out, with a line that says so. FOLDER:
# $MORTISE_BENCH_RIVALS, or mortise-bench/rivals in the user's data folder, where mortise-bench looks.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
folder=${1:-${MORTISE_BENCH_RIVALS:-${XDG_DATA_HOME:-$HOME/.local/share}/mortise-bench/rivals}}
jars=/usr/share/java
missing=0
mkdir -p -- "$folder"

left_out() {
    echo "install.sh: left out: $*" >&2
    missing=1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

wanted=''
/usr/bin/python3 -c 'import redis' 2>/dev/null || wanted="$wanted python3-redis"
/usr/bin/python3 -c 'import kazoo' 2>/dev/null || wanted="$wanted python3-kazoo"
/usr/bin/python3 -c 'import hiredis' 2>/dev/null || wanted="$wanted python3-hiredis" # redis-py is faster with it
[ -f "$jars/curator-recipes.jar" ] || wanted="$wanted libcurator-recipes-java"
command -v javac >/dev/null || wanted="$wanted default-jdk-headless"
command -v npm >/dev/null || wanted="$wanted nodejs npm"
command -v flock >/dev/null || wanted="$wanted util-linux"
if [ -n "$wanted" ]; then
    # shellcheck disable=SC2086 # the list is words
    as_root apt-get -q -y install --no-install-recommends $wanted || left_out "of apt-get:$wanted"
fi

# Of redlock its fourth version: the fifth has another interface, and was never released as other than a beta.
if command -v npm >/dev/null; then
    npm install --silent --no-audit --no-fund --prefix "$folder" ioredis redlock@4 redis-semaphore ||
        left_out 'node-redlock, redis-semaphore: npm failed'
else
    left_out 'node-redlock, redis-semaphore: there is no npm'
fi

if command -v javac >/dev/null && [ -f "$jars/curator-recipes.jar" ]; then
    mkdir -p -- "$folder/classes"
    javac -d "$folder/classes" -cp "$jars/*" "$here/Curator.java" || left_out 'Curator: its adapter does not compile'
else
    left_out 'Curator: there is no javac, or no libcurator-recipes-java'
fi
# In C++: a library in FOLDER/prefix, where cmake looks for it if FOLDER is the default; else set CMAKE_PREFIX_PATH.
if command -v git >/dev/null && command -v cmake >/dev/null && command -v g++ >/dev/null; then
    plus=$folder/redis-plus-plus
    [ -d "$plus" ] || git clone -q --depth 1 --branch 1.3.15 https://github.com/sewenew/redis-plus-plus "$plus" || true
    if [ -d "$plus" ] && cmake -S "$plus" -B "$plus/build" -DCMAKE_BUILD_TYPE=Release -DREDIS_PLUS_PLUS_BUILD_TEST=OFF \
        -DREDIS_PLUS_PLUS_BUILD_SHARED=OFF -DCMAKE_INSTALL_PREFIX="$folder/prefix" >/dev/null &&
        cmake --build "$plus/build" -j2 >/dev/null && cmake --install "$plus/build" >/dev/null; then
        echo "redis-plus-plus: configure and build Mortise again, which builds its adapter"
    else
        left_out 'redis-plus-plus: git or its build failed'
    fi
else
    left_out 'redis-plus-plus: there is no git, cmake or g++'
fi
echo "installed in $folder"
exit "$missing"
