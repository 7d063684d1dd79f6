#!/bin/sh
# migrate.sh - checks the model of the migrate plugin's protocol with spin: all states with few clients; that the check
# notices two parts of the protocol that are left out; and at night (MORTISE_NIGHTLY=1) each other part, and as many states
# with more clients as time permits.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
. "$here/searched.sh"
folder=$(mktemp -d "${TMPDIR:-/tmp}/mortise-model.XXXXXX")
trap 'rm -rf -- "$folder"' EXIT
for tool in spin cc; do
    command -v $tool >/dev/null && continue
    echo "skipped: $tool is needed (apt-get install spin gcc)" >&2
    [ "${MORTISE_REQUIRE_ALL:-}" = 1 ] && exit 1
    exit 77
done
tier=quick
[ "${MORTISE_NIGHTLY:-}" != 1 ] || tier=nightly
sum=$(searched_sum "$tier" "$here/migrate.pml" "$here/migrate.sh")
if was_searched "migrate.pml $tier" "$sum"; then
    exit 0
fi
cd "$folder"

# What is searched in every run is so small that a compiler that optimises takes longer than it saves.
optimised=-O0
[ "${MORTISE_NIGHTLY:-}" != 1 ] || optimised=-O2

# search SECONDS CC-FLAGS PAN-FLAGS MODEL-FLAGS…: leaves what was found in `found`. A search that does not come to
# its end in time is cut off.
search() {
    seconds=$1 how=$2 arguments=$3
    shift 3
    rm -f -- pan*
    spin -a "$@" "$here/migrate.pml" >spin.out || {
        cat spin.out >&2
        exit 1
    }
    # shellcheck disable=SC2086 # words
    cc $optimised -w -DSAFETY -DMEMLIM=4000 -DVECTORSZ=2048 $how -o pan pan.c
    # shellcheck disable=SC2086
    timeout --signal=INT "$seconds" ./pan -m1000000 $arguments >found 2>&1 || true
}

states() {
    sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' found | head -n 1
}

# holds WHAT MODEL-FLAGS…: all states, and none is wrong.
holds() {
    what=$1
    shift
    search 3000 -DCOLLAPSE '' "$@"
    if ! grep -q 'errors: 0$' found || grep -q 'max search depth too small\|out of memory\|interrupted' found; then
        echo "$what: wrong, or not looked at in full:" >&2
        cat found >&2
        exit 1
    fi
    echo "$what: holds in all $(states) states"
}

# fails WHAT MODEL-FLAGS…: an assertion is violated.
fails() {
    what=$1
    shift
    search 600 -DCOLLAPSE '' "$@"
    grep -q 'assertion violated' found || {
        echo "$what: not found out:" >&2
        cat found >&2
        exit 1
    }
    echo "$what: found out"
}

# wide SECONDS WHAT MODEL-FLAGS…: so far as the time allows, by bits; no proof, but a wide look.
wide() {
    seconds=$1 what=$2
    shift 2
    search "$seconds" -DBITSTATE -w31 "$@"
    if ! grep -q 'errors: 0$' found; then
        echo "$what: wrong:" >&2
        cat found >&2
        exit 1
    fi
    echo "$what: holds in some $(states) states"
}

pair='-DOLDS=1 -DBOTHS=0 -DNEWS=1' lone='-DOLDS=1 -DBOTHS=0 -DNEWS=0'
# shellcheck disable=SC2086 # words
{
    holds 'an old and a new client, an operator' $pair -DOPERATORS=1 -DSTEPS=1
    fails 'a model in which nobody ever is new' $pair -DOPERATORS=1 -DSTEPS=1 -DTELL
    fails 'a model in which the last steps are never taken' $pair -DOPERATORS=1 -DSTEPS=1 -DTELL_LAST
    fails 'without DEADLINE' $pair -DOPERATORS=1 -DSTEPS=1 -DBREAK_DEADLINE
    fails 'without VERSION' $lone -DOPERATORS=2 -DSTEPS=1 -DBREAK_VERSION
    if [ "$tier" = quick ]; then
        now_searched "migrate.pml $tier" "$sum"
        exit 0
    fi
    for part in ORDER AGAIN LAPSES WAIT; do
        fails "without $part" $pair -DOPERATORS=1 -DSTEPS=1 -DBREAK_$part
    done
    fails 'without REWRITE' $lone -DOPERATORS=2 -DSTEPS=1 -DBREAK_REWRITE
    fails 'without BORROWED' $lone -DOPERATORS=2 -DSTEPS=2 -DBREAK_BORROWED
    holds 'a client, two operators of two steps' $lone -DOPERATORS=2 -DSTEPS=2
    holds 'an old and a new client, an operator of three steps' $pair -DOPERATORS=1 -DSTEPS=3
    holds 'an old and a new client, two operators' $pair -DOPERATORS=2 -DSTEPS=1
    wide 300 'a client of each phase, two operators of two steps' -DOPERATORS=2 -DSTEPS=2
    wide 300 'two clients of each phase, two operators of two steps' \
        -DOLDS=2 -DBOTHS=2 -DNEWS=2 -DOPERATORS=2 -DSTEPS=2
}
now_searched "migrate.pml $tier" "$sum"
