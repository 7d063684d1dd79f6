#!/bin/sh
# postgres.sh MAJOR COMMAND… - runs a test with the PostgreSQL server of that version, which fetch.sh has put into
# $MORTISE_COMPAT/MAJOR. The clients (psql) and libpq stay the system's.
set -eu
major=${1:?MAJOR}
shift
bin=${MORTISE_COMPAT:-}/$major/bin
if [ -z "${MORTISE_COMPAT:-}" ] || [ ! -x "$bin/postgres" ]; then
    echo "SKIP: no PostgreSQL $major in \$MORTISE_COMPAT (tests/compat/fetch.sh)"
    exit 77
fi
PATH=$bin:$PATH
export PATH
postgres --version
exec "$@"
