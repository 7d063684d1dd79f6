#!/bin/sh
# build-wheel.sh FOLDER - makes the wheel and the sdist of the Python package in FOLDER, without an index.
#
# Needs a C compiler, CMake, and for Python: cffi, setuptools, wheel and its headers (on Debian: python3-cffi
# python3-setuptools python3-wheel python3-dev). With MORTISE_BUILD_DIR in the environment, the library is taken from that
# build tree, else it is built. MORTISE_PYTHON: the Python that builds (default: python3). WHEEL_ONLY=1: no sdist.
set -eu
[ $# -eq 1 ] || {
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 64
}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
mkdir -p -- "$1"
folder=$(CDPATH='' cd -- "$1" && pwd -P)
python=${MORTISE_PYTHON:-python3}

# Builds in a copy, so that the source tree stays clean.
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-wheel.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
top=$(CDPATH='' cd -- "$here/../.." && pwd -P)
if [ -d "$here/source" ]; then
    top=$here/source
fi
mkdir "$work/python"
(cd -- "$here" && tar -cf - --exclude=./source --exclude=./build --exclude=__pycache__ --exclude='*.egg-info' .) |
    tar -xf - -C "$work/python"
ln -s -- "$top" "$work/python/source"
cd -- "$work/python"
[ "${WHEEL_ONLY:-0}" = 1 ] || "$python" setup.py -q sdist --dist-dir "$folder" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
"$python" setup.py -q bdist_wheel --dist-dir "$folder" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
