#!/bin/sh
# run.sh MODEL [quick|nightly|NAME] - checks a model with spin, as the lines "check" and "plant" in the head of MODEL say.
#
#   check WHEN NAME OPTIONS           the search must go through every state and find nothing
#   plant WHEN NAME FOUND-BY OPTIONS  the model contains a mistake, and the search must find it: the assertion of that
#                                     name, or a "cycle"
#
# WHEN is quick or nightly; the nightly ones run only with MORTISE_NIGHTLY=1 in the environment. NAME: only that one, at
# any time. OPTIONS are for spin and the compiler; with -DLIVENESS the search looks for cycles. An incomplete search
# (memory, depth, time) is a failure. A trail shows each step in the words of the model. What was searched before is left
# out: searched.sh.
set -eu
[ $# -ge 1 ] && [ -r "$1" ] || {
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit 64
}
for tool in spin gcc; do
    command -v "$tool" >/dev/null 2>&1 || {
        echo "$tool is not installed: skipped"
        exit 77
    }
done
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
. "$here/searched.sh"
model=$(CDPATH='' cd -- "$(dirname -- "$1")" && pwd -P)/$(basename -- "$1")
only=${2:-quick}
if [ "$only" = nightly ] && [ "${MORTISE_NIGHTLY:-0}" != 1 ]; then
    echo "left for the nightly run (MORTISE_NIGHTLY=1)"
    exit 0
fi
what="$(basename -- "$model") $only"
sum=$(searched_sum "$only" "$model")
if was_searched "$what" "$sum"; then
    exit 0
fi
memory_mib=${MORTISE_MODEL_MEMORY_MIB:-7000}
seconds=${MORTISE_MODEL_SECONDS:-3000}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/mortise-model.XXXXXX")
trap 'rm -rf -- "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
cd -- "$scratch"

# A mistake, and all states of a quick check, are found in a search so short that a compiler that optimises takes longer
# than it saves.
optimised=-O0
[ "${MORTISE_NIGHTLY:-0}" != 1 ] || optimised=-O2

# search OPTIONS…: leaves pan's report in ./report.
search() {
    rm -f -- ./pan ./pan.* ./*.trail ./report
    shape=-DSAFETY flags=''
    case " $* " in *' -DLIVENESS '*) shape='' flags=-a ;; esac
    # The generated code is not ours to mend: -w.
    # shellcheck disable=SC2086 # no word, or one
    spin -a "$@" "$model" >./report 2>&1 && grep -i -q error ./report && return 1
    gcc -w $optimised $shape -DCOLLAPSE -DVECTORSZ=1024 "-DMEMLIM=$memory_mib" "$@" -o pan pan.c >>./report 2>&1 || return 1
    # shellcheck disable=SC2086
    timeout "$seconds" ./pan $flags -n -m2000000 >./report 2>&1 || echo "(it ended with $?)" >>./report
}

figure() {
    sed -n "$1" ./report | head -n 1
}

# Whether it went through all of it. pan says each of these where it did not.
was_complete() {
    grep -q '^State-vector' ./report &&
        ! grep -q -E 'Search not completed|search depth too small|out of memory|^\(it ended with|memory limit' ./report
}

# story OPTIONS…: the trail, in words.
story() {
    set -- -k "$(basename -- "$model").trail" "$@"
    spin "$@" "$model" 2>/dev/null | sed -n -E '/^ *(client|server|----|<<<<)/s/^ *//p' | tail -n 80
}

report() {
    printf '%-5s %-14s %s; %s states, %s transitions, depth %s, %s MiB, %s s\n' "$kind" "$name" "$1" \
        "$(figure 's/^ *\([0-9.e+]*\) states, stored.*/\1/p')" \
        "$(figure 's/^ *\([0-9.e+]*\) transitions.*/\1/p')" \
        "$(figure 's/.*depth reached \([0-9]*\).*/\1/p')" \
        "$(figure 's/^ *\([0-9]*\).*total actual memory usage.*/\1/p')" \
        "$(($(date +%s) - begun))"
}

failed=0
fail() {
    report "FAILED: $1"
    failed=1
    grep -E '^pan|rror|Warning|ended with' ./report || tail -n 5 ./report
    shift
    [ ! -r "./$(basename -- "$model").trail" ] || story "$@"
}

check() {
    search "$@" || :
    if ! grep -q 'errors: 0$' ./report; then
        fail 'an error was found' "$@"
    elif ! was_complete; then
        fail 'the search was cut short' "$@"
    else
        report clean
    fi
}

plant() {
    by=$1
    shift
    search "$@" || :
    if grep -q -E "^pan:1: (assertion violated $by |(acceptance )?$by)" ./report; then
        report "found, by $by"
    else
        fail "not found by $by" "$@"
    fi
}

sed -n -E 's/^ \* +((check|plant) +(quick|nightly) )/\1/p' "$model" >./plan
[ -s ./plan ] || {
    echo "$model has no line that says what to check" >&2
    exit 1
}
ran=0
while read -r kind when name options; do
    [ "$only" = "$when" ] || [ "$only" = "$name" ] || continue
    begun=$(date +%s)
    # shellcheck disable=SC2086 # options are words
    "$kind" $options
    ran=$((ran + 1))
done <./plan
[ "$ran" -gt 0 ] || {
    echo "nothing to check" >&2
    exit 1
}
case $only in
quick | nightly) [ "$failed" -ne 0 ] || now_searched "$what" "$sum" ;;
esac
exit "$failed"
