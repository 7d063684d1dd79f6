#!/bin/sh
# tree.sh ROOT - rules of the source tree that a compiler does not check: which part may know which. Comments are ignored,
# because an example in a comment may name what the code must not.
set -eu
cd -- "$1"
failures=0
code=$(mktemp "${TMPDIR:-/tmp}/mortise-tree.XXXXXX")
trap 'rm -f -- "$code"' EXIT
files=$(find include core drivers plugins tools bench bindings examples tests -name '*.[ch]' -type f | sort)

# All code as lines "FILE:NUMBER: TEXT", less its comments. Knows strings and character constants.
# shellcheck disable=SC2086 # no file of the tree has a space in its name
awk '
FNR == 1 {
    inside = 0
    if ($0 !~ /^\/\*/) print FILENAME ":1: it does not open by saying what it is for" >"/dev/stderr"
}
{
    line = $0; out = ""
    while (length(line) > 0) {
        if (inside) {
            end = index(line, "*/")
            if (end == 0) break
            line = substr(line, end + 2); inside = 0
        } else if (match(line, /^([^"\047\/]+|"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047)/)) {
            out = out substr(line, 1, RLENGTH); line = substr(line, RLENGTH + 1)
        } else if (substr(line, 1, 2) == "/*") {
            inside = 1; line = substr(line, 3)
        } else if (substr(line, 1, 2) == "//") {
            break
        } else {
            out = out substr(line, 1, 1); line = substr(line, 2)
        }
    }
    print FILENAME ":" FNR ": " out
}' $files >"$code" 2>"$code.opening"
if [ -s "$code.opening" ]; then
    cat "$code.opening" >&2
    failures=1
fi
rm -f -- "$code.opening"

# forbid RULE PATTERN FOLDER|FOLDER… [EXCEPT]: no code below the folders, but those below EXCEPT, may match.
forbid() {
    hits=$(grep -i -E "^($3)/[^:]*:[0-9]+:.*($2)" -- "$code" | grep -v -E "^(${4:-none})/" || true)
    [ -n "$hits" ] || return 0
    failures=1
    printf '%s\n' "$hits" | sed "s|\$|   <- $1|" >&2
}

include='#[[:space:]]*include[[:space:]]*'
modules='drivers|plugins|tests/sim|examples/driver-skeleton'
programs='tools|bench|bindings|examples'
everything="include|core|drivers|plugins|$programs|tests"

forbid 'the core knows no backend' \
    'redis|redlock|zookeeper|zoo_|postgres|libpq|sqlite|mysql|mariadb|etcd|consul' core
forbid 'a module includes no core header' "$include\"[^\"]*core/" "$modules"
forbid 'of mortise, a module includes <mortise/driver.h> only' \
    "$include([\"<]mortise/[^d]|\"[^\"]*mortise/)" "$modules"
forbid 'of mortise, a program includes <mortise/mortise.h> only (and a witness <mortise/witness.h>)' \
    "$include([\"<]mortise/[^mw]|\"[^\"]*(core|drivers|plugins|mortise)/)" "$programs" examples/driver-skeleton
# The clock of tests/replay is virtual: a sleep there is an event.
forbid 'a test waits for the event, it does not sleep' \
    '[^a-z0-9_](u|nano|clock_nano)?sleep[[:space:]]*\(' tests tests/replay
forbid 'a number with a fraction is printed and read as the locale of the program has it: use integers' \
    '%[-+ #0-9]*[.][0-9*]*L?[aefg]|%L?[aefg][^a-z0-9]|[^a-z0-9_](strto(f|d|ld)|atof)[[:space:]]*\(' 'core|drivers|plugins'
forbid 'unchecked: use the bounded or checking function' \
    '[^a-z0-9_](strcpy|strcat|stpcpy|v?sprintf|gets|ato(i|l|ll|f))[[:space:]]*\(' "$everything"
exit $failures
