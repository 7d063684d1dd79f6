#!/bin/sh
# run.sh [--fast] [--sanitize] [--nightly] [CTEST-OPTION…] - the whole test with one command: installs what testing
# needs, builds, and runs every test that is not nightly. docs/testing.md describes the families of tests, and how to read
# a failure.
#
#   --fast       only the most useful tests, for after an edit: at most about three minutes after the build
#   --sanitize   also under AddressSanitizer + UndefinedBehaviorSanitizer, and under ThreadSanitizer; what goes the same
#                way plain and under AddressSanitizer runs only under that
#   --nightly    all of that with the tests that take minutes, and longer runs of the others (MORTISE_NIGHTLY=1): hours.
#                Prints the faults that the torture caused; fewer than a thousand is a failure
#   CTEST-OPTION is passed on to ctest, for example -R '^redis' or -L unit
#
# Builds in build-test*/. A test that fails runs once more, alone, unless its failure shows a defect (tests/again.py).
# MORTISE_TEST_JOBS: how many tests that wait run at once (six for each processor; a test that computes counts as three).
# With MORTISE_REQUIRE_ALL=1 in the environment, a test that cannot run here is a failure, not a skip.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
. "$root/tests/packages.sh"
. "$root/cmake/build.sh"

usage() {
    sed -n '2,16s/^# \{0,1\}//p' "$0"
    exit "$1"
}

sanitize=no
tier='-LE ^nightly$' # what takes minutes is left out
at_night='' # behind a sanitizer's name: its labels
while [ $# -gt 0 ]; do
    case $1 in
    --fast) tier='-L ^fast$' ;;
    --sanitize) sanitize=yes ;;
    --nightly)
        sanitize=yes
        tier=''
        at_night='(nightly)?'
        MORTISE_NIGHTLY=1
        export MORTISE_NIGHTLY
        ;;
    -h | --help) usage 0 ;;
    --) ;;
    -*) break ;;
    *) usage 64 >&2 ;;
    esac
    shift
done
case ${MORTISE_REQUIRE_ALL:-0} in
0) require_all=OFF ;;
*) require_all=ON ;;
esac

total=0 skipped=0 failures='' ahead=''

# count WHAT FILE: a number from the head of a JUnit report, 0 if there is none.
count() {
    number=$(sed -n "s/^[[:space:]]*$1=\"\([0-9][0-9]*\)\".*/\1/p" "$2" 2>/dev/null | head -n 1)
    echo "${number:-0}"
}

# build_ahead PRESET…: builds the trees of sanitizers in the background, with the processor time that the tests leave.
build_ahead() {
    # shellcheck disable=SC2016 # the inner shell expands these
    setsid nice -n 19 sh -c 'root=$1 require_all=$2; shift 2; . "$root/cmake/build.sh"
        for preset; do
            build_tree "$root/build-test-${preset%-ubsan}" "$preset" "-DMORTISE_REQUIRE_ALL=$require_all"
        done' sh "$root" "$require_all" "$@" </dev/null >/dev/null 2>&1 &
    ahead=$!
    trap 'end_build_ahead' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# end_build_ahead: what is not built by now is built in the foreground. A busy machine leaves the background no time.
end_build_ahead() {
    [ -n "$ahead" ] || return 0
    # Its group, if it has one already. dash takes no "--" behind a signal's name.
    kill -TERM "-$ahead" 2>/dev/null || kill -TERM "$ahead" 2>/dev/null || true
    wait "$ahead" 2>/dev/null || true
    tries=50 # where nobody reaps orphans a group never ends
    while [ $tries -gt 0 ] && kill -0 "-$ahead" 2>/dev/null; do
        sleep 0.1
        tries=$((tries - 1))
    done
    ahead=''
}

# seconds_since INSTANT, of `date +%s`
seconds_since() {
    echo $(($(date +%s) - $1))
}

# slowest FILE: the ten tests of a JUnit report that took longest.
slowest() {
    sed -n 's/.*<testcase name="\([^"]*\)".* time="\([0-9.]*\)".*/\2 \1/p' "$1" 2>/dev/null |
        sort -rn | head -n 10 | while read -r seconds test; do
        printf '%8.1f s  %s\n' "$seconds" "$test"
    done
}

# left_out LOG: what tests say that they did not check, because this system or this user may not do it, or a program is not
# there, each once. They say "(skipped: WHY)", or on a line of its own "left out: WHAT" or "not checked …: WHAT". A driver that
# lacks something is another matter.
left_out() {
    sed -nE 's/.*\((skipped: [^)]*)\).*/\1/p; s/^.*((left out|not checked[^:]*): .*)$/\1/p' "$1" 2>/dev/null |
        sed '/^skipped: the driver has no /d; /^skipped: no other processes/d' | sort | uniq -c
}

# run_suite NAME PRESET FOLDER COMMAND…: builds FOLDER and runs COMMAND --test-dir FOLDER …, which is ctest.
# Remembers a failure, so that the other suites run nevertheless.
run_suite() {
    name=$1 preset=$2 folder=$3
    shift 3
    end_build_ahead
    began=$(date +%s)
    echo "== $name: building"
    if ! build_tree "$folder" "$preset" "-DMORTISE_REQUIRE_ALL=$require_all"; then
        failures="$failures, $name (does not build)"
        return 0
    fi
    build_seconds=$(seconds_since "$began")
    case $sanitize,$preset in
    yes,debug) build_ahead asan-ubsan tsan ;;
    yes,asan-ubsan) build_ahead tsan ;;
    esac
    echo "== $name: testing"
    began=$(date +%s)
    report=$folder/report.xml log=$folder/ctest.log
    rm -rf -- "$report" "$log" "$folder/tests/torture/report"
    passed=yes
    "$@" --test-dir "$folder" --output-on-failure --no-tests=error -j "$jobs" \
        --output-junit "$report" --output-log "$log" || passed=no
    parts=$(left_out "$folder/Testing/Temporary/LastTest.log") # the next ctest writes another one
    if [ "$passed" = no ]; then
        # shellcheck disable=SC2086 # words
        python3 "$root/tests/again.py" "$report" "$log" $fixed_addresses ctest --test-dir "$folder" ||
            failures="$failures, $name"
    fi
    echo "== $name: built in $build_seconds s, tested in $(seconds_since "$began") s; the slowest tests:"
    slowest "$report"
    [ -z "$parts" ] || printf '== %s: parts of tests that were left out here:\n%s\n' "$name" "$parts"
    if [ "${MORTISE_NIGHTLY:-0}" = 1 ]; then
        echo "== $name: faults of the torture"
        every=''
        [ "$name" != plain ] || every=every # the sanitizers have fewer rows
        # shellcheck disable=SC2086 # no word, or one
        python3 "$root/tests/torture/report.py" "$folder/tests/torture/report" 1000 $every ||
            failures="$failures, $name (too few faults)"
    fi
    total=$((total + $(count tests "$report")))
    skipped=$((skipped + $(count skipped "$report") + $(count disabled "$report")))
}

# ThreadSanitizer cannot lay out its memory where a kernel randomises addresses too widely.
fixed_addresses=''
without_random=''
if setarch "$(uname -m)" -R true 2>/dev/null; then
    without_random="setarch $(uname -m) -R"
fi

[ "${MORTISE_NIGHTLY:-0}" = 1 ] || packages_at_night=''
if [ "$require_all" = ON ]; then
    packages_install "$packages_to_build$packages_to_test$packages_at_night" || exit 1
else
    packages_install "$packages_to_build" "$packages_to_test$packages_at_night" || exit 1
fi
# A version manager puts a shell script in the place of python3, which takes longer to start than most of our scripts run.
if python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null) && [ -x "$python" ]; then
    PATH=$(dirname -- "$python"):$PATH
fi

jobs=${MORTISE_TEST_JOBS:-$((6 * $(getconf _NPROCESSORS_ONLN)))}
plain_tier=$tier
if [ "$sanitize" = yes ] && [ "$tier" = '-LE ^nightly$' ]; then
    plain_tier='-LE ^(nightly|sanitized)$' # the latter run under AddressSanitizer: cmake/MortiseTest.cmake
fi
# shellcheck disable=SC2086 # words
run_suite plain debug "$root/build-test" ctest $plain_tier "$@"
if [ "$sanitize" = yes ]; then
    if [ "${MORTISE_NIGHTLY:-0}" = 1 ]; then # two seeds of a torture, not five: sanitizers find what is wrong in each of them
        export MORTISE_TORTURE_SEEDS="${MORTISE_TORTURE_SEEDS:-1}"
    fi
    # Each sanitizer runs what it can find something in; a test says so by its labels.
    # shellcheck disable=SC2086 # words
    run_suite 'address and undefined behaviour' asan-ubsan "$root/build-test-asan" ctest -L "^address$at_night\$" $tier "$@"
    fixed_addresses=$without_random
    # shellcheck disable=SC2086 # words
    run_suite 'threads' tsan "$root/build-test-tsan" $fixed_addresses ctest -L "^thread$at_night\$" $tier "$@"
fi

if [ -n "$failures" ]; then
    echo "FAILED: ${failures#, }. See above."
    exit 1
fi
if [ "$skipped" -gt 0 ]; then
    if [ "$require_all" = ON ]; then
        echo "FAILED: $skipped of $total tests were skipped, and MORTISE_REQUIRE_ALL is set."
        exit 1
    fi
    echo "All tests that can run here passed: $((total - skipped)) of $total; $skipped skipped."
else
    echo "All $total tests passed."
fi
