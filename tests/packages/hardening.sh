#!/bin/sh
# hardening.sh FOLDER… - every program and library of a release build below these folders is hardened as Debian's packages
# are: position independent, read-only relocations, all symbols bound at the start, stack protector, _FORTIFY_SOURCE. Prints
# what is missing, and how many files it has looked at.
#
# Not CET: the linker marks a file for it only if the C library's start files are marked, and Debian's are not.
set -eu
count=0 bad=0
list=$(mktemp)
trap 'rm -f -- "$list"' EXIT
find "$@" -type f ! -name '*.o' -exec sh -c 'for file; do
    [ "$(head -c 4 "$file" | tail -c 3)" != ELF ] || echo "$file"
done' sh {} + >"$list"

lacks() {
    echo "$file: $1" >&2
    bad=1
}

while read -r file; do
    count=$((count + 1))
    about=$(readelf -W -h -l -d --dyn-syms "$file" 2>/dev/null)
    has() {
        printf '%s\n' "$about" | grep -q -E -e "$1"
    }
    has '^ *Type: *DYN' || lacks 'is not position independent'
    has '^ *GNU_RELRO ' || lacks 'has no read-only relocations (-z relro)'
    has 'FLAGS.*NOW' || lacks 'binds symbols late (-z now)'
    has '__stack_chk_fail' || lacks 'has no stack protector'
    # Each of our files prints text, and the compiler proves the sizes of some calls only.
    has ' __[a-z]+_chk(@|$)' || lacks 'calls no checked function (_FORTIFY_SOURCE)'
    ! has '^ *GNU_STACK .* RWE ' || lacks 'has an executable stack'
done <"$list"
[ "$count" -gt 0 ] || {
    echo "no program or library below $*" >&2
    exit 1
}
[ "$bad" = 0 ] || exit 1
echo "$count files are hardened"
