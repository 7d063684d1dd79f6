#!/bin/sh
# commands.sh - commands.py does what README.md says, exactly as printed: in a copy of the source, on a system without
# Mortise, in a root directory of its own. Exits 77 if that cannot be created.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
. "$here/../root.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-commands.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
if ! in_root "$work" true; then
    echo "no root of its own can be made here" >&2
    exit 77
fi
mkdir "$work/tree"
(cd -- "$MORTISE_SOURCE_DIR" && tar -cf - --exclude='./build*' --exclude=./.git .) | tar -xf - -C "$work/tree"
in_root "$work" python3 "$here/commands.py" "$work/tree"
