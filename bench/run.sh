#!/bin/sh
# run.sh [BUILD] [--out FOLDER] [--report] [OPTION …] - runs every benchmark of a build folder, one after the
# other, and keeps its figures as FOLDER/NAME.json.
#
#   BUILD          a release build (default: build/ of this tree)
#   --out FOLDER   where the JSON files go (default: BUILD/bench/figures)
#   --report       then write them into docs/performance.md (report.sh)
#   OPTION …       for the programs: --quick, --rounds N, --cpu N, --check; see state --help
#
# Needs nothing but the build folder (those of Redis, PostgreSQL, MySQL, etcd and ZooKeeper: their servers; that of ZooKeeper
# is left out where there is none). Fails if a program does, or with --check if it misses a target.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
programs='state cycle handover leases command redis redis_renew redis_queue redis_kinds redis_cluster redis_cluster_renew witness redlock postgres mysql etcd etcd_counts'

usage() {
    sed -n '2,12s/^# \{0,1\}//p' "$0"
    exit "$1"
}

build='' out='' report=no options='' value_wanted=''
for argument in "$@"; do
    case $value_wanted in
    --out) out=$argument value_wanted='' && continue ;;
    ?*) options="$options $value_wanted $argument" value_wanted='' && continue ;;
    esac
    case $argument in
    -h | --help) usage 0 ;;
    --report) report=yes ;;
    --out | --rounds | --cpu | --seconds) value_wanted=$argument ;;
    --quick | --check) options="$options $argument" ;;
    -*) usage 64 >&2 ;;
    *)
        [ -z "$build" ] || usage 64 >&2
        build=$argument
        ;;
    esac
done
[ -z "$value_wanted" ] || usage 64 >&2
[ -n "$build" ] || build=$here/../build
[ -x "$build/bench/state" ] || {
    echo "run.sh: no benchmarks in $build: build it first, with -DCMAKE_BUILD_TYPE=Release" >&2
    exit 1
}
[ -n "$out" ] || out=$build/bench/figures
mkdir -p -- "$out"

failures=''
for program in $programs; do
    [ -x "$build/bench/$program" ] || {
        echo "run.sh: left out: $program is not in this build (see what cmake says)" >&2
        continue
    }
    # shellcheck disable=SC2086 # options are words
    "$build/bench/$program" $options --json "$out/$program.json" || failures="$failures $program"
done
if [ -x "$build/bench/zookeeper" ]; then
    code=0
    # shellcheck disable=SC2086 # options are words
    sh "$here/zookeeper.sh" "$build" --out "$out" $options || code=$?
    case $code in
    0) ;;
    77) echo 'run.sh: left out: there is no ZooKeeper here' >&2 ;;
    *) failures="$failures zookeeper" ;;
    esac
else
    echo 'run.sh: left out: zookeeper is not in this build (see what cmake says)' >&2
fi
if [ "$report" = yes ] && [ -z "$failures" ]; then
    sh "$here/report.sh" "$out" "$here/../docs/performance.md"
fi
[ -z "$failures" ] || {
    echo "run.sh: failed:$failures" >&2
    exit 1
}
