#!/bin/sh
# crowd.sh ROUNDS CLIENTS - so many clients in random phases (crowd.c) between two Redis servers, while an operator takes the
# steps in both directions, ROUNDS times, whichever clients exist. There are never an old and a new client with a lease at
# one instant. Needs MORTISE_CROWD and what every test has.
set -eu
folder=$(mktemp -d "${TMPDIR:-/tmp}/mortise-crowd.XXXXXX")
servers() {
    sh "$MORTISE_SOURCE_DIR/tests/servers.sh" "$@"
}
clean_up() {
    servers end redis "$folder"
    rm -rf -- "$folder"
}
trap clean_up EXIT
values=$(servers start redis "$folder" nodes=2 "guard=$$")
port() {
    printf '%s\n' "$values" | sed -n "s/^PORT$1=//p"
}
conf() { # PHASE FILE [PATIENCE]
    cat >"$folder/$2.conf" <<END
[mortise]
driver = migrate
namespace = crowd:
unreachable_timeout = ${3:-10s}
[migrate]
from = redis:a
to = redis:b
phase = $1
presence = 10s
[redis:a]
servers = 127.0.0.1:$(port '')
[redis:b]
servers = 127.0.0.1:$(port 2)
END
}
for phase in old both new; do
    conf "$phase" "$phase"
done
conf both operator 60s # UNREACHABLE would be the end of the test

mkfifo "$folder/stdin" "$folder/stdout"
"$MORTISE_CROWD" "$folder" "$2" 2>"$folder/told" <"$folder/stdin" >"$folder/stdout" &
crowd=$!
exec 3>"$folder/stdin" 4<"$folder/stdout"

fail() {
    echo "crowd: $*" >&2
    cat "$folder/told" >&2
    kill "$crowd" 2>/dev/null || true
    exit 1
}
step() {
    "$MORTISE_COMMAND" -C "$folder/operator.conf" migrate advance --wait 120s "$@" 2>"$folder/step" ||
        fail "advance $*: exit code $?: $(cat "$folder/step")"
}
# saw PHASE WHAT: a client of that phase has had that since.
saw() {
    echo "$1 $2" >&3
    read -r answer <&4 && [ "$answer" = "$1 $2" ] || fail "no $1 $2"
}
round=0
while [ "$round" -lt "$1" ]; do
    saw old leases
    saw new refused
    step # 1 -> 2
    saw new leases
    saw old refused
    step # 2 -> 3
    saw new leases
    saw both refused
    step --back # 3 -> 2
    saw both leases
    step --back # 2 -> 1
    step        # the file, to both
    round=$((round + 1))
done
exec 3>&-
cat <&4
code=0
wait "$crowd" || code=$?
[ "$code" -lt 128 ] || fail "it died by SIG$(kill -l "$code")"
[ "$code" -eq 0 ] || fail "exit code $code"
