#!/bin/sh
# What runs for long is started by nohup, or in the background of a script: a signal that was ignored then stays ignored.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

ignoring() { # SIGNAL COMMAND…
    trap '' "$1"
    exec "${@:2}"
}

what "watch"
ignoring HUP "$BIN" watch --interval 50ms "$N" >"$DIR/watch" &
watcher=$!
hold "${N}before"
yes "it watches" until_true holds "$DIR/watch" "	held	${N}before	"
kill -HUP $watcher
hold "${N}after"
yes "HUP: it watches on" until_true holds "$DIR/watch" "	held	${N}after	"
kill -TERM $watcher
same_code "TERM, which was not ignored, ends it" 143 $watcher

what "serve"
if [ -x "$(dirname "$BIN")/mortise-serve" ]; then
    ignoring HUP "$BIN" serve --listen 127.0.0.1:0 --interval 200ms 2>"$DIR/serve" &
    server=$!
    until_true holds "$DIR/serve" 'serve: http:' || wrong "it does not serve: $(cat "$DIR/serve")"
    port=$(sed -n 's/.*serve: http:.*:\([0-9]*\)\/$/\1/p' "$DIR/serve")
    is_healthy() {
        local answer=
        exec {page}<>"/dev/tcp/127.0.0.1/$port" || return 1
        printf 'GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n' >&"$page"
        read -r -t "$LIMIT" answer <&"$page"
        exec {page}>&-
        [[ $answer == *" 200 "* ]]
    } 2>/dev/null
    yes "it answers" until_true is_healthy
    kill -HUP $server
    # more than one: what came before the signal may be answered with it
    yes "HUP: it answers on" eval 'is_healthy && is_healthy && is_healthy'
    kill -TERM $server
    same_code "TERM ends it" 0 $server
else
    printf 'not checked here: serve (it is not built)\n'
fi

what "witness"
mkdir -m 700 "$DIR/witness"
ignoring INT "$BIN" witness --socket "$DIR/witness/socket" 2>"$DIR/witness.err" &
witness=$!
until_true holds "$DIR/witness.err" 'listens on' || wrong "it does not listen: $(cat "$DIR/witness.err")"
kill -INT $witness
for _ in 1 2 3; do
    timeout 5 "$BIN" witness --socket "$DIR/witness/socket" 2>>"$DIR/second.err"
    same "INT: it watches on, and refuses a second one" 75 $?
done
yes "it is alive" alive $witness
kill -TERM $witness
same_code "TERM ends it" 0 $witness

end
