#!/bin/sh
# man.sh - the man pages are well formed; libmortise(3) names every function of mortise.h, and its example compiles. (pages.py
# compares the pages of programs with the programs.) Needs mandoc, man, $MORTISE_CC.
set -eu
pages=$MORTISE_SOURCE_DIR/docs/man
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-man.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
failures=0

complain() {
    printf 'man: %s\n' "$1" >&2
    failures=1
}

for page in "$pages"/*; do
    # pages of other packages, which may not be installed here, are looked for too
    mandoc -T lint -W warning "$page" 2>&1 | grep -v 'referenced manual not found' >"$work/lint" || true
    LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -E UTF-8 -l "$page" 2>>"$work/lint" >"$work/$(basename "$page")"
    [ ! -s "$work/lint" ] || complain "$page: $(cat "$work/lint")"
    [ -s "$work/$(basename "$page")" ] || complain "$page is empty"
done

tr '\n' ' ' <"$MORTISE_SOURCE_DIR/include/mortise/mortise.h" |
    grep -o -E 'MORTISE_API [^;{(]*mortise_[a-z0-9_]+\(' | grep -o -E 'mortise_[a-z0-9_]+\($' | tr -d '(' |
    sort -u >"$work/functions"
[ "$(wc -l <"$work/functions")" -gt 20 ] || complain "functions were not found in mortise.h"
while read -r name; do
    [ "$name" = mortise_release_scope ] && continue # MORTISE_WITH's
    grep -q -w -- "$name" "$pages/libmortise.3" || complain "libmortise(3) does not know $name"
done <"$work/functions"

sed -n '/^\.Bd -literal$/,/^\.Ed$/p' "$pages/libmortise.3" | sed '/^\.[BE]d/d; s/\\e/\\/g' >"$work/example.c"
grep -q 'int main' "$work/example.c" || complain "libmortise(3) has no example"
"$MORTISE_CC" -std=c11 -Wall -Wextra -Werror "-I$MORTISE_SOURCE_DIR/include" -fsyntax-only "$work/example.c" ||
    complain "the example in libmortise(3) does not compile"
exit $failures
