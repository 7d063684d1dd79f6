#!/bin/sh
# pair.sh VERB FOLDER - the hooks of the conformance suite for a subject on two backends: it calls those of each (KIND.sh),
# one after the other. $MORTISE_PAIR has the two kinds, "none" for one without a server; $MORTISE_SERVER_FROM and _TO have
# the KEYs of each. The lines of `start` have the prefix FROM_ or TO_.
#
# `left` ignores presences: those of killed clients end with their ttl, which is longer than `left` waits.
set -eu

here=$(CDPATH='' cd -- "${0%/*}" && pwd -P)
VERB=${1:?VERB} FOLDER=${2:?FOLDER}
MORTISE_HOOKS_PARENT=$PPID
export MORTISE_HOOKS_PARENT

# side NAME KIND SERVER-KEYS
side() {
    [ "$2" != none ] || return 0
    mkdir -p "$FOLDER/$1"
    case $VERB in
    start) MORTISE_SERVER=$3 sh "$here/$2.sh" start "$FOLDER/$1" >"$FOLDER/$1.values" || return
        sed "s/^/$1_/" "$FOLDER/$1.values" ;;
    left)
        MORTISE_LEFT_BESIDE='\.mortise-migrate(/|%2F)presence' MORTISE_SERVER=$3 \
            sh "$here/$2.sh" left "$FOLDER/$1" ;;
    *) MORTISE_SERVER=$3 sh "$here/$2.sh" "$VERB" "$FOLDER/$1" ;;
    esac
}

# shellcheck disable=SC2086 # two words
set -- $MORTISE_PAIR
side FROM "$1" "${MORTISE_SERVER_FROM:-}" & # both servers at once: one may take long to start
from=$!
to_code=0 from_code=0
side TO "$2" "${MORTISE_SERVER_TO:-}" || to_code=$?
wait "$from" || from_code=$?
[ "$from_code" -eq 0 ] || exit "$from_code"
exit "$to_code"
