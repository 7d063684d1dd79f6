#!/bin/sh
# quickstart.sh - shows Mortise at work, on a fresh Debian 12, Ubuntu 24.04, or later: installs what the build needs, builds a
# release in build-quickstart/, and lets eight processes add to one number in a file, with the lock and without.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
. "$root/tests/packages.sh"
. "$root/cmake/build.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-quickstart.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# CMake would say so after all packages are installed.
needed=$(sed -n 's/^cmake_minimum_required(VERSION \(.*\))$/\1/p' "$root/CMakeLists.txt")
there=$( (cmake --version || LC_ALL=C apt-cache policy cmake) 2>/dev/null |
    sed -n 's/^cmake version //p; s/^  Candidate: \([0-9].*\)/\1/p')
if [ -n "$there" ] && [ "$(printf '%s\n' "$needed" "$there" | sort -V | head -n 1)" != "$needed" ]; then
    echo "CMake $there is too old: Mortise needs $needed, as in Debian 12, Ubuntu 24.04, or later." >&2
    exit 1
fi

packages_install "$packages_to_build" || exit 1
# A build directory of its own, because it leaves out the tests.
echo "Building Mortise in build-quickstart/..."
build_tree "$root/build-quickstart" release -DMORTISE_TESTS=OFF -DMORTISE_BENCH=OFF || exit 1

# A config file needs only the driver, and where it keeps its locks.
cat >"$work/mortise.conf" <<END
[mortise]
driver = sqlite
[sqlite]
path = $work/locks.db
END
counter=$root/build-quickstart/examples/counter

echo
echo "Eight processes each add 250 to one number in a file: read, add, write."
printf '  with the lock:     '
locked=$("$counter" "$work/mortise.conf" "$work/number") || {
    echo "$locked"
    echo "The count is wrong. This must not happen." >&2
    exit 1
}
echo "$locked"
printf '  without the lock:  '
"$counter" --without-lock "$work/mortise.conf" "$work/number"

echo
echo "The same lock for any command:"
echo "  \$ mortise run nightly -- echo 'only one of us at a time'"
printf '  '
"$root/build-quickstart/bin/mortise" -C "$work/mortise.conf" run nightly -- echo 'only one of us at a time'
