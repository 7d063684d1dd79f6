#!/bin/sh
# `mortise run` during a migration: a run inside another run, and a run that is stopped and continued.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

mkfifo "$DIR/up" "$DIR/go" "$DIR/waits"
# Open for both directions, so that a command that never comes does not block for ever.
exec {UP}<>"$DIR/up"
started() {
    read -r -t "$LIMIT" _ <&"$UP" || wrong "the command did not start: $(cat "$DIR/"*err)"
}

fleet() { # PHASE TO: the config of one client
    printf '%s\n' '[mortise]' 'driver = migrate' '[migrate]' 'from = sqlite:a' "to = $2" "phase = $1" \
        'presence = 60s' '[sqlite:a]' "path = $DIR/a.db" '[sqlite:b]' "path = $DIR/b.db" \
        '[redis]' "servers = 127.0.0.1:${PORT:-1}" 'fencing = off' >"$DIR/$1.conf"
}

for phase in old both new; do
    fleet $phase sqlite:b
done
step() { "$BIN" -C "$DIR/fleet.conf" migrate advance >>"$DIR/steps" 2>&1; }

what "a run inside of a run: the outer in phase new, the inner in both, and a stranger in both waits"
cp "$DIR/old.conf" "$DIR/fleet.conf"
yes "the fleet is in phase both" step
yes "and may be in new" step
"$BIN" -C "$DIR/new.conf" run "${N}a" -- sh -c "
    echo >$DIR/up
    read -r _ <$DIR/go
    '$BIN' -C $DIR/both.conf run -w 60s ${N}a -- true
    echo \$? >$DIR/code" 2>"$DIR/err" &
outer=$!
started
"$BIN" -C "$DIR/both.conf" run "${N}a" -- true 2>"$DIR/stranger.err" &
stranger=$!
# the stranger has its leg on `from` and waits for `to`
has_first_leg() { "$BIN" -C "$DIR/both.conf#sqlite:a" status --json "${N}a" | grep -q '"held":true'; }
until_true has_first_leg || wrong "the stranger does not come: $(cat "$DIR/stranger.err")"
echo >"$DIR/go"
same_code "the outer one ends" 0 $outer
same "the inner one does not wait" 75 "$(cat "$DIR/code")"
has_line "and says why" "$DIR/err" "is held by the mortise run that started this one"
same_code "the stranger has its turn" 0 $stranger

namespace='unshare -pf --mount-proc'
$namespace true 2>/dev/null || namespace='unshare -Urpf --mount-proc'
if $namespace true 2>/dev/null; then
    # Two containers with one host name: in each of them the run is process 1.
    other_container() { # CONFIG
        $namespace "$BIN" -C "$1" run "${N}c" -- sh -c "echo >$DIR/up; read -r _ <$DIR/go" 2>"$DIR/holder.err" &
        holder=$!
        started
        : >"$DIR/err"
        $namespace "$BIN" -C "$1" run "${N}d" -- "$BIN" -C "$1" run -w 60s "${N}c" -- true 2>"$DIR/err" &
        nested=$!
        waits_or_ends() { gone $nested || [ "$("$BIN" -C "$1" status --json "${N}c" | grep -c '"waiters":[1-9]')" -gt 0 ]; }
        until_true waits_or_ends "$1" || wrong "no waiter is seen: $(cat "$DIR/err")"
        timeout "$LIMIT" sh -c "echo >$DIR/go"
        same_code "the holder ends" 0 $holder
        same_code "the nested run waited for it" 0 $nested
        same "nothing is said" "" "$(cat "$DIR/err")"
    }
    what "a run inside of a run, and a holder in another container that has the pid and host of the outer one"
    other_container "$DIR/both.conf#sqlite:a"
    what "the same over a migration"
    other_container "$DIR/both.conf"
else
    echo "not checked here: two containers with one host name (no namespaces here)"
fi

if command -v redis-server >/dev/null && command -v redis-cli >/dev/null && PORT=$(free_port); then
    what "tokens on from and none on to: stopped and continued"
    redis-server --port "$PORT" --bind 127.0.0.1 --save '' --dir "$DIR" >"$DIR/redis.log" 2>&1 &
    server=$!
    answers() { redis-cli -p "$PORT" ping >/dev/null 2>&1; }
    until_true answers || wrong "the server does not start: $(cat "$DIR/redis.log")"
    rm -rf "$DIR/a.db"*
    fleet old redis
    fleet both redis
    cp "$DIR/old.conf" "$DIR/fleet.conf"
    yes "the fleet is in phase both" step
    "$BIN" -C "$DIR/both.conf" run --ttl 60s "${N}b" -- sh -c "echo >$DIR/up; read -r _ <$DIR/go" 2>"$DIR/err" &
    wrapper=$!
    started
    kill -TSTP $wrapper
    until_true stopped $wrapper || wrong "it does not stop"
    kill -CONT $wrapper
    same "nothing is held against it" "" "$(cat "$DIR/err")"
    echo >"$DIR/go" &
    same_code "it goes on and ends with its own code" 0 $wrapper
    kill %% 2>/dev/null
    same "nothing is said" "" "$(cat "$DIR/err")"
    kill $server
    wait $server 2>/dev/null
else
    echo "not checked here: tokens on one side only (no redis-server)"
fi

end
