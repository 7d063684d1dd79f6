#!/bin/sh
# install.sh [FOLDER] - installs the rivals that mortise-bench compares with: Debian's packages by apt-get, those of
# JavaScript by npm into FOLDER/node_modules, and Curator's adapter, compiled, into FOLDER/classes. None is required:
# what cannot be had is told and left out. FOLDER: $MORTISE_BENCH_RIVALS, or mortise-bench/rivals in the user's data
# folder, where mortise-bench looks.
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
echo "installed in $folder"
exit "$missing"
