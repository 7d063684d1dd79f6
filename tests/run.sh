#!/bin/sh
# run.sh [--sanitize] [--nightly] - the whole test with one command: installs what testing needs, builds, and
# runs every test.
#
#   --sanitize   also under AddressSanitizer + UndefinedBehaviorSanitizer, and under ThreadSanitizer
#   --nightly    all of that, and the tests take their time (MORTISE_NIGHTLY=1): hours. Tells what was broken, by
#                kind; fewer than a thousand faults are a failure
#
# Builds in build-test*/. MORTISE_TEST_JOBS: how many tests run at once (one more than there are processors, for most of
# them mostly wait). With MORTISE_REQUIRE_ALL=1 in the environment a test that cannot run here is a failure, not a skip.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
. "$root/tests/packages.sh"
. "$root/cmake/build.sh"

usage() {
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit "$1"
}

sanitize=no
nightly='-LE nightly' # what takes minutes, and is left out otherwise
for argument in "$@"; do
    case $argument in
    --sanitize) sanitize=yes ;;
    --nightly)
        sanitize=yes
        nightly=''
        MORTISE_NIGHTLY=1
        export MORTISE_NIGHTLY
        ;;
    -h | --help) usage 0 ;;
    *) usage 64 >&2 ;;
    esac
done
case ${MORTISE_REQUIRE_ALL:-0} in
0) require_all=OFF ;;
*) require_all=ON ;;
esac

total=0 skipped=0 failures=''

# count WHAT FILE: a number from the head of a JUnit report, 0 if there is none.
count() {
    number=$(sed -n "s/^[[:space:]]*$1=\"\([0-9][0-9]*\)\".*/\1/p" "$2" 2>/dev/null | head -n 1)
    echo "${number:-0}"
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

# run_suite NAME PRESET FOLDER COMMAND…: has FOLDER built and runs COMMAND --test-dir FOLDER …, which is ctest.
# Remembers a failure, so that the other suites run nevertheless.
run_suite() {
    name=$1 preset=$2 folder=$3
    shift 3
    began=$(date +%s)
    echo "== $name: building"
    if ! build_tree "$folder" "$preset" "-DMORTISE_REQUIRE_ALL=$require_all"; then
        failures="$failures, $name (does not build)"
        return 0
    fi
    build_seconds=$(seconds_since "$began")
    echo "== $name: testing"
    began=$(date +%s)
    report=$folder/report.xml
    rm -rf -- "$report" "$folder/tests/torture/report"
    if ! "$@" --test-dir "$folder" --output-on-failure --no-tests=error -j "$jobs" \
        --output-junit "$report"; then
        failures="$failures, $name"
    fi
    echo "== $name: built in $build_seconds s, tested in $(seconds_since "$began") s; the slowest tests:"
    slowest "$report"
    if [ -z "$nightly" ]; then
        echo "== $name: faults of the torture"
        python3 "$root/tests/torture/report.py" "$folder/tests/torture/report" 1000 ||
            failures="$failures, $name (too few faults)"
    fi
    total=$((total + $(count tests "$report")))
    skipped=$((skipped + $(count skipped "$report") + $(count disabled "$report")))
}

# ThreadSanitizer cannot lay out its memory where a kernel randomises addresses too widely.
fixed_addresses=''
if setarch "$(uname -m)" -R true 2>/dev/null; then
    fixed_addresses="setarch $(uname -m) -R"
fi

jobs=${MORTISE_TEST_JOBS:-$(($(getconf _NPROCESSORS_ONLN) + 1))}
[ -z "$nightly" ] || packages_nightly=''
packages_install "$packages_to_build$packages_to_test$packages_nightly" || exit 1
# shellcheck disable=SC2086 # words
run_suite plain debug "$root/build-test" ctest $nightly
if [ "$sanitize" = yes ]; then
    run_suite 'address and undefined behaviour' asan-ubsan "$root/build-test-asan" ctest -LE 'build|variant|nightly'
    # The command has no threads but the library's, and its tests look at the clock: not here.
    # shellcheck disable=SC2086 # words
    run_suite 'threads' tsan "$root/build-test-tsan" $fixed_addresses ctest -LE 'build|variant|unthreaded|command|nightly'
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
