#!/bin/sh
# quickstart.sh - examples/quickstart.sh works in a fresh copy of the tree, and what it builds can be installed.
set -eu
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-quickstart-test.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
mkdir "$work/tree"
(cd -- "$MORTISE_SOURCE_DIR" && tar -cf - --exclude='./build*' --exclude=./.git .) | tar -xf - -C "$work/tree"
unset MORTISE_MODULE_PATH MORTISE_COMMAND
printed=$(sh "$work/tree/examples/quickstart.sh")
printf '%s\n' "$printed"
printf '%s\n' "$printed" | grep -q '2000 of 2000'
printf '%s\n' "$printed" | grep -q 'only one of us at a time$'
cmake --install "$work/tree/build" --prefix "$work/prefix" >/dev/null
"$work/prefix/bin/mortise" -C "sqlite:$work/locks.db" run x -- echo installed | grep -q '^installed$'
