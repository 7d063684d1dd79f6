#!/bin/sh
# `mortise watch` beside a witness that comes, ends and comes again: each listing says what is true then.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

mkdir -m 700 "$DIR/witness" "$DIR/own"
printf '%s\n' '[mortise]' 'driver = sqlite' "witness = $DIR/witness/socket" '[sqlite]' "path = $DIR/own/locks.db" >"$DIR/own.conf"
export MORTISE_CONFIG=$DIR/own.conf

start_witness() {
    "$BIN" witness --socket "$DIR/witness/socket" 2>"$DIR/witness.err" &
    WITNESS=$!
    until_true holds "$DIR/witness.err" 'listens on' || wrong "it does not listen: $(cat "$DIR/witness.err")"
}

end_witness() {
    kill -TERM $WITNESS
    wait $WITNESS
}

# A holder that is no `mortise run`, which has a witness of its own.
new_taker() { # [COMMAND that starts it]
    [ -z "${TAKER:-}" ] || exec {TAKER}>&-
    rm -f "$DIR/taker.in"
    mkfifo "$DIR/taker.in"
    : >"$DIR/taker.out"
    "$@" "$MORTISE_BUILD_DIR/tests/taker" "$DIR/own.conf" <"$DIR/taker.in" >>"$DIR/taker.out" 2>>"$DIR/taker.err" &
    exec {TAKER}>"$DIR/taker.in"
    until_true lines_in "$DIR/taker.out" 1 || wrong "it does not start: $(cat "$DIR/taker.err")"
    answers=1
}

acquire() {
    echo "acquire $1 -1 60000" >&"$TAKER"
    answers=$((answers + 1))
    until_true lines_in "$DIR/taker.out" $answers || wrong "it does not get $1: $(cat "$DIR/taker.out" "$DIR/taker.err")"
}

is_watched() { # a name that watch does not show
    [ "$(json "${N}holder" witnessed)" = true ]
}

"$BIN" watch --json --interval 50ms "${N}w" >"$DIR/watch" &
watcher=$!
shown() { # NAME WITNESSED
    yes "$1 is shown" until_true holds "$DIR/watch" "\"name\":\"$1\""
    has_line "its witness" "$DIR/watch" "\"name\":\"$1\",.*\"witnessed\":$2"
}

what "no witness"
new_taker
acquire "${N}w0"
shown "${N}w0" false

what "a witness that comes later"
start_witness
new_taker # the former one looks for a witness only now and then
acquire "${N}holder"
yes "the holder is watched" until_true is_watched
acquire "${N}w1"
shown "${N}w1" true

what "the witness has closed the connection of watch, as it also does after five seconds"
end_witness
start_witness
yes "the holder is watched again" until_true is_watched
acquire "${N}w2"
shown "${N}w2" true

what "an operator whose configuration names that witness, but cannot be used with one"
mkfifo "$DIR/once"
asked_once() {
    cat "$DIR/own.conf" >"$DIR/once" &
    [ "$(MORTISE_CONFIG=$DIR/once json "${N}w2" witnessed)" = true ]
}
yes "sees that the holder is watched" until_true asked_once

what "no witness again"
end_witness
acquire "${N}w3"
shown "${N}w3" false

# The witness of this user, looked for by an operator with another configuration than the holder's.
in_place() {
    "$@"
}
mkdir -m 700 "$DIR/run"
if [ "$(id -u)" != 0 ]; then
    export XDG_RUNTIME_DIR=$DIR/run
    PLACED=1
elif unshare -m true 2>/dev/null; then # root's is in /run: a /run of our own
    in_place() {
        # shellcheck disable=SC2016 # for the shell in the namespace
        exec unshare -m sh -c 'mount --bind "$0" /run && exec "$@"' "$DIR/run" "$@"
    }
    PLACED=1
fi
sees() { # WITNESSED
    [ "$(in_place "$BIN" -C "$UNUSED" status --json "${N}far" | sed -n 's/.*"witnessed":\([a-z]*\).*/\1/p')" = "$1" ]
}
what "an operator whose configuration uses no witness"
if [ -n "${PLACED:-}" ]; then
    printf '%s\n' '[mortise]' 'driver = sqlite' '[sqlite]' "path = $DIR/own/locks.db" >"$DIR/own.conf"
    UNUSED="sqlite:$DIR/own/locks.db?witness=off"
    in_place "$BIN" witness 2>"$DIR/witness.err" &
    WITNESS=$!
    until_true holds "$DIR/witness.err" 'listens on' || wrong "it does not listen: $(cat "$DIR/witness.err")"
    new_taker in_place
    acquire "${N}far"
    yes "sees that the holder is watched" until_true sees true
    end_witness
    yes "and that it is not" until_true sees false
else
    printf 'not checked: no namespaces\n'
fi

kill -TERM $watcher
same_code "TERM ends it" 143 $watcher
exec {TAKER}>&-
wait
end
