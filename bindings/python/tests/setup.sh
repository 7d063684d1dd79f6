#!/bin/sh
# setup.sh FOLDER - for the tests: builds wheel and sdist into FOLDER/dist, and installs the wheel into a fresh virtual
# environment, FOLDER/venv, without an index. cffi and pytest are the system's. Needs MORTISE_BUILD_DIR, MORTISE_PYTHON.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
rm -rf -- "$1"
mkdir -p -- "$1"
# Nothing is measured here, so the build is not optimised and takes a third of the time. At night it is built as for users.
if [ "${MORTISE_NIGHTLY:-0}" != 1 ] && [ -z "${MORTISE_CFLAGS:-}" ]; then
    export CFLAGS="${CFLAGS:-} -O0 -g0"
fi
sh "$here/../build-wheel.sh" "$1/dist"

# Uses the system's pip: a pip for each environment would be unpacked and compiled, which takes longer than building the wheel.
without=''
if "$MORTISE_PYTHON" -c 'import pip' 2>/dev/null; then
    without=--without-pip
fi
"$MORTISE_PYTHON" -m venv ${without:+"$without"} --system-site-packages "$1/venv"
"$1/venv/bin/python" -m pip install --quiet --no-index --disable-pip-version-check "$1"/dist/mortise-*.whl
