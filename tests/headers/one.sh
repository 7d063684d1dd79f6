#!/bin/sh
# one.sh HEADER COMPILER FLAGS… - compiles a program that includes HEADER, twice, and nothing else.
set -eu
header=$1
shift
printf '#include <%s>\n#include <%s>\nint main() { return 0; }\n' \
    "$header" "$header" | "$@" -
