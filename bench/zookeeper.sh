#!/bin/sh
# zookeeper.sh [BUILD] [--out FOLDER] [OPTION …] - the ZooKeeper benchmark on private servers (tests/servers.sh): one
# that waits for its disk before it answers, one that does not, and one that does not and shares a processor with
# the program. OPTIONs are the program's; the figures go to FOLDER (BUILD/bench/figures), as three files.
# Exits 77, and leaves no figures, where there is no ZooKeeper.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
build=$here/../build
case ${1:-} in
'' | -*) ;;
*)
    build=$1
    shift
    ;;
esac
out=$build/bench/figures
if [ "${1:-}" = --out ]; then
    out=$2
    shift 2
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/mortise-bench.XXXXXX")
mkdir -p -- "$out"
end() {
    for kind in "$folder"/*/; do
        sh "$here/../tests/servers.sh" end zookeeper "$kind" || true
    done
    rm -rf -- "$folder"
}
trap end EXIT
cpu=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)

# measure NAME SYNC [CPU] [OPTION …]
failed=0
measure() {
    name=$1 sync=$2 pinned=$3
    shift 3
    mkdir -- "$folder/$name"
    rm -f -- "$out/$name.json"
    # shellcheck disable=SC2086 # words, or nothing
    ${pinned:+taskset -c $pinned} sh "$here/../tests/servers.sh" start zookeeper "$folder/$name" "guard=$$" \
        "sync=$sync" tick=1000 heap=128m >"$folder/$name/values" || exit
    MORTISE_BENCH_KIND=$name \
        MORTISE_BENCH_ZOOKEEPER=127.0.0.1:$(sed -n 's/^PORT=//p' "$folder/$name/values") \
        "$build/bench/zookeeper" ${pinned:+--cpu $pinned} "$@" --json "$out/$name.json" || failed=1
    sh "$here/../tests/servers.sh" end zookeeper "$folder/$name"
}
measure zookeeper yes '' "$@"
measure zookeeper_unforced no '' "$@"
measure zookeeper_one no "$cpu" "$@"
exit "$failed"
