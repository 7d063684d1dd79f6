#!/bin/sh
# common_node.sh - `from` is a Redis, and also a node of redlock, which is `to`: a mistake that the plugin need not notice
# (docs/plugins.md). A client of phase both has the lock on that Redis, and waits for the other nodes, where another has it. redlock
# gives its votes back on all nodes, again and again: that must not end what the client has on the common one.
# Needs what every test has, and redis-cli.
set -eu
folder=$(mktemp -d "${TMPDIR:-/tmp}/mortise-common.XXXXXX")
servers() {
    sh "$MORTISE_SOURCE_DIR/tests/servers.sh" "$@"
}
waiter=
clean_up() {
    [ -z "$waiter" ] || kill "$waiter" 2>/dev/null || true
    servers end redis "$folder"
    rm -rf -- "$folder"
}
trap clean_up EXIT
values=$(servers start redis "$folder" nodes=3 aof=yes "guard=$$")
port() {
    printf '%s\n' "$values" | sed -n "s/^PORT$1=//p"
}
cli() { # NODE COMMAND…
    node=$1
    shift
    redis-cli -p "$(port "$node")" "$@"
}
fail() {
    echo "common_node: $*" >&2
    cat "$folder/told" >&2
    exit 1
}
cat >"$folder/both.conf" <<END
[mortise]
driver = migrate
witness = off
unreachable_timeout = 5s
[migrate]
from = redis
to = redlock
phase = both
[redis]
servers = 127.0.0.1:$(port '')
[redlock]
nodes = 127.0.0.1:$(port ''), 127.0.0.1:$(port 2), 127.0.0.1:$(port 3)
max_ttl = 60s
node_persistent = yes
END

for node in 2 3; do
    printf '%s 0000000000000001 0000000000000001\n' ffffffffffffffffffffffffffffffff | cli $node -x set mortise:n >"$folder/set"
done
# A client whose presence on redlock reaches the common node first is refused. Which one does is chance, so it tries again.
waits() {
    [ -z "$waiter" ] || ! kill -0 "$waiter" 2>/dev/null || return 0
    "$MORTISE_COMMAND" -C "$folder/both.conf" run n -- true 2>"$folder/told" &
    waiter=$!
}
holder() {
    cli '' getrange mortise:n 0 31
}
# The commands that node 2 has executed for redlock: votes, and their undoing. The common node had the same.
asked() {
    cli 2 info commandstats | sed -n 's/^cmdstat_evalsha:calls=\([0-9]*\).*/\1/p'
}
until_true() { # COMMAND…
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || return 1
        sleep 0.05
    done
}
is_held() {
    waits
    first=$(holder)
    [ -n "$first" ]
}
is_asked_again() {
    [ "$(asked)" -ge "$enough" ]
}
until_true is_held || fail "the lock is not held on the common node"
enough=$(($(asked) + 6))
until_true is_asked_again || fail "the other nodes are not asked again"
now=$(holder)
[ "$now" = "$first" ] || fail "the lock on the common node was $first's, and is '$now's"

cli 2 del mortise:n >"$folder/set"
cli 3 del mortise:n >"$folder/set"
code=0
wait "$waiter" || code=$?
waiter=
[ "$code" -eq 0 ] || fail "exit code $code"
