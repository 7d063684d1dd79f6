#!/bin/sh
# symbols.sh HEADER[:HEADER] LIBRARY MODULE… - the library exports what the HEADERs declare, each symbol with a version, and a module
# exports the one symbol that it is loaded by. Any other symbol could collide with one of the application or of another
# module, and would be ABI by accident. And the library is small: no large table of zeros is in its file.
set -eu

# The names that FILE defines for others, without versions. The names of versions and the linker's own are left out.
exported() {
    nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $NF); print $NF }' |
        grep -v -x -E '_(init|fini|edata|end)|__bss_start' | sort || true
}

# The functions that the files FILE:FILE declare with MORTISE_API.
declared() {
    printf '%s\n' "$1" | tr ':' '\n' | while read -r file; do cat <"$file"; done | tr '\n' ' ' | awk 'BEGIN { RS = "MORTISE_API " }
        NR > 1 && match($0, /^[^;{]*mortise_[a-z0-9_]+\(/) {
            $0 = substr($0, 1, RLENGTH - 1); sub(/.*[^a-z0-9_]/, ""); print }' | sort
}

failures=0
complain() {
    printf '%s\n' "symbols: $1" >&2
    failures=1
}

header=$1 library=$2
shift 2
names=$(exported "$library")
wanted=$(declared "$header")
[ -n "$wanted" ] || complain "nothing was found in $header"
for name in $wanted; do
    printf '%s\n' "$names" | grep -q -x "$name" || complain "$library does not export $name"
done
for name in $names; do
    printf '%s\n' "$wanted" | grep -q -x "$name" ||
        complain "$library exports $name, which $header does not declare"
done

# An unversioned symbol would be found by any program, however old or new.
unversioned=$(nm -D --defined-only "$library" | awk '$2 != "A" && $NF !~ /@@MORTISE_[0-9.]+$/ { print $NF }')
[ -z "$unversioned" ] || complain "$library exports without a version: $(echo $unversioned)"

# What is left of the file when its symbols and debug information are stripped: code, constants, and data that are not zero.
most=307200
size=$(size -B "$library" | awk 'NR == 2 { print $1 + $2 }')
[ "${size:-$most}" -lt "$most" ] ||
    complain "$library has ${size:-an unknown number of} bytes of code and data, and $most are too many"

[ $# -gt 0 ] || complain "no module was given"
for module in "$@"; do
    names=$(exported "$module")
    [ "$names" = mortise_module_v1 ] ||
        complain "$module exports \"$(echo $names)\", which should be mortise_module_v1 alone"
done
exit $failures
