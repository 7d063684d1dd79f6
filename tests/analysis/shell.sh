#!/bin/sh
# shell.sh SHELLCHECK - runs shellcheck on every shell script of the tree: no warning, no error. First on a script with a
# mistake, which it must find.
set -eu
shellcheck=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-shell.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
printf '#!/bin/sh\nfor file in $(find .); do cat $fiel; done\n' >"$work/planted.sh"
! "$shellcheck" -S warning "$work/planted.sh" >"$work/found" 2>&1 && grep -q SC2154 "$work/found" || {
    echo "$shellcheck sees nothing"
    exit 1
}

cd -- "$MORTISE_SOURCE_DIR"
{
    find . \( -path './build*' -o -path ./.git \) -prune -o -name '*.sh' -print
    for other in .ci/run tests/command/common; do
        [ ! -f "$other" ] || echo "$other"
    done
} | sort >"$work/all"
[ "$(wc -l <"$work/all")" -gt 30 ] || {
    echo "no scripts in $MORTISE_SOURCE_DIR"
    exit 1
}
# What starts as sh and goes on as bash is bash.
xargs grep -l 'exec bash "\$0"' <"$work/all" >"$work/bash"
grep -v -x -F -f "$work/bash" "$work/all" >"$work/sh"
failed=0
xargs "$shellcheck" -x -S warning -s bash <"$work/bash" || failed=1
xargs "$shellcheck" -x -S warning <"$work/sh" || failed=1
echo "$(wc -l <"$work/all") scripts"
exit "$failed"
