#!/bin/sh
# with.sh NAME PROGRAM COMMAND… - runs a test with the server PROGRAM that fetch.sh or debian.sh has put into
# $MORTISE_COMPAT/NAME/bin. The clients (psql, mariadb) and their libraries stay the system's.
set -eu
name=${1:?NAME}
program=${2:?PROGRAM}
shift 2
bin=${MORTISE_COMPAT:-}/$name/bin
if [ -z "${MORTISE_COMPAT:-}" ] || [ ! -x "$bin/$program" ]; then
    echo "SKIP: no $program of $name in \$MORTISE_COMPAT (tests/compat/fetch.sh, tests/compat/debian.sh)"
    exit 77
fi
PATH=$bin:$PATH
export PATH
"$program" --version
exec "$@"
