#!/bin/sh
# Nobody reads stderr, and the pipe is full: that keeps `mortise run` neither from renewing nor from releasing.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

mkfifo "$DIR/up" "$DIR/go"
exec {UP}<>"$DIR/up"
# The command writes to `up` when it runs, and ends when `go` is written to.
waits="echo \$\$ >$DIR/up; read -r _ <$DIR/go"

started() { # waits for the command; COMMAND is its pid
    COMMAND=
    read -r -t "$LIMIT" COMMAND <&"$UP" || wrong "the command did not start"
}

go() { # ends the command
    timeout "$LIMIT" sh -c "echo >'$DIR/go'" || wrong "the command does not read"
}

ends() { # PID: as same_code, but it must not hang
    until_true gone "$1" || kill -KILL "$1"
}

# A FIFO that takes no byte more. Its other end is open here, so that nobody gets a broken pipe.
mkfifo "$DIR/full"
exec 8<>"$DIR/full"
fill() {
    local size
    for size in 4096 1; do
        dd if=/dev/zero of="$DIR/full" oflag=nonblock bs=$size count=1000000 2>/dev/null
    done
}

empty() { # what was in it
    timeout 60 dd if="$DIR/full" iflag=nonblock bs=4096 2>/dev/null | tr -d '\0'
}
fill

what "the grace is limited, which is said before the command starts"
"$BIN" run --ttl 20s --grace 1h "${N}a" -- sh -c "$waits" 2>"$DIR/full" &
wrapper=$!
started
go
ends $wrapper
same_code "it runs all the same" 0 $wrapper
yes "the lock is free" is_free "${N}a"

what "what could not be said is said when somebody reads again"
"$BIN" run --ttl 20s --grace 1h "${N}a" -- sh -c "$waits" 2>"$DIR/full" &
wrapper=$!
started
empty >/dev/null
go
same_code "the command's code" 0 $wrapper
empty >"$DIR/read"
has_line "said" "$DIR/read" "^mortise: \"${N}a\": a grace of 1 h does not fit in the ttl and is limited to"
fill

what "the lock is lost: the command is ended, and the wrapper too"
"$BIN" run --ttl 6s --grace 200ms "${N}a" -- sh -c "trap '' TERM; $waits" 2>"$DIR/full" &
wrapper=$!
started
"$BIN" break "${N}a" --token "$(json "${N}a" token)" 2>/dev/null
yes "the command is gone" until_true gone "$COMMAND"
ends $wrapper
same_code "the code" 76 $wrapper

what "kill -9 of the wrapper: the keeper releases the lock"
"$BIN" run --ttl 10m "${N}a" -- sh -c "$waits" 2>"$DIR/full" &
wrapper=$!
started
keeper=$(keeper_of $wrapper)
kill -KILL $wrapper
yes "the command is gone" until_true gone "$COMMAND"
yes "the lock is free" until_true is_free "${N}a"
yes "the keeper ends" until_true gone "$keeper"

# A machine that stands still for a second at the wrong instant has the lock given up, and that is right.
what "the command has ended, and what it has started goes on: it keeps the lock"
kept() {
    local rest first code
    rm -f "$DIR/rest"
    "$BIN" run --ttl 3s "${N}b" -- bash -c "bash -c 'trap \"\" TERM; echo \$\$ >$DIR/rest; exec sleep 1000' &
        while [ ! -s $DIR/rest ]; do sleep 0.01; done" 2>"$DIR/full" &
    wrapper=$!
    until_true filled "$DIR/rest" || wrong "it did not start"
    rest=$(cat "$DIR/rest")
    first=$(ms)
    over() { gone "$rest" || [ "$(ms)" -gt $((first + 3500)) ]; } # after the first deadline
    until_true over
    alive "$rest" && is_held "${N}b" || echo "it was killed"
    kill -KILL "$rest" 2>/dev/null
    ends $wrapper
    wait $wrapper
    code=$?
    [ $code = 0 ] || echo "the code is $code"
    [ $code = 0 ] && is_free "${N}b"
}
yes "it lives after the ttl; then the wrapper ends with 0, and the lock is free" eval 'kept || kept || kept'

what "kill -9 of the wrapper: its configuration came through a descriptor that has a lock"
mkdir -m 700 "$DIR/own"
printf '%s\n' '[mortise]' 'driver = sqlite' '[sqlite]' "path = $DIR/own/locks.db" >"$DIR/own.conf"
exec 9<"$DIR/own.conf"
flock -s 9
"$BIN" -C /dev/fd/9 run --ttl 10m "${N}d" -- sh -c "$waits" 2>"$DIR/full" &
wrapper=$!
started
exec 9<&-
no "the command has that lock" flock -n "$DIR/own.conf" true
kill -KILL $wrapper
yes "the lock is free" until_true eval 'MORTISE_CONFIG=$DIR/own.conf is_free "${N}d"'
yes "that of the file, too" until_true flock -n "$DIR/own.conf" true
wait $wrapper 2>/dev/null

what "kill -9 of the wrapper: its configuration came out of a pipe, which is not for the keeper to open again"
mkfifo "$DIR/pipe.conf"
cat "$DIR/own.conf" >"$DIR/pipe.conf" &
writer=$!
"$BIN" -C "$DIR/pipe.conf" run --ttl 10m "${N}e" -- sh -c "$waits" 2>"$DIR/full" &
wrapper=$!
started
until_true gone $writer
keeper=$(keeper_of $wrapper)
kill -KILL $wrapper
yes "the command is gone" until_true gone "$COMMAND"
yes "the keeper ends" until_true gone "$keeper"
kill -KILL "$keeper" 2>/dev/null
yes "the lock is left to its ttl" eval 'MORTISE_CONFIG=$DIR/own.conf is_held "${N}e"'
wait $wrapper 2>/dev/null
sed 's/^driver = .*/&\nwitness = required/' "$DIR/own.conf" >"$DIR/required.conf"
cat "$DIR/required.conf" >"$DIR/pipe.conf" &
timeout "$LIMIT" "$BIN" -C "$DIR/pipe.conf" run "${N}f" -- true 2>"$DIR/err"
same "who requires a witness is refused" 69 $?
has_line "and told why" "$DIR/err" 'witness = required: another process cannot open this configuration: .* a pipe'

if can_freeze; then
    MORTISE_CONFIG=$(slow_to_give_up)
    export MORTISE_CONFIG
    what "kill -9 of the wrapper while the backend does not answer: an outer flock does not wait for the keeper"
    : >"$DIR/outer"
    exec 9>>"$DIR/outer"
    flock 9
    "$BIN" run --ttl 10m "${N}o" -- sh -c "$waits" 2>"$DIR/full" &
    wrapper=$!
    started
    exec 9>&-
    no "the command has the outer lock" flock -n "$DIR/outer" true
    keeper=$(keeper_of $wrapper)
    freeze
    kill -KILL $wrapper
    until_true gone "$COMMAND"
    yes "the outer lock is free" until_true flock -n "$DIR/outer" true
    yes "the keeper still waits for the backend" alive "$keeper"
    thaw
    yes "the lock is free" until_true is_free "${N}o"
    wait $wrapper 2>/dev/null
    what "a signal while the release hangs"
    "$BIN" run "${N}c" -- sh -c "$waits" 2>"$DIR/full" &
    wrapper=$!
    started
    freeze
    go
    until_true gone "$COMMAND"
    begin=$(ms)
    kill -TERM $wrapper
    ends $wrapper
    same_code "the command's code" 0 $wrapper
    soon "$begin" 20000 "soon"
    thaw
else
    printf 'not checked here: a release that hangs (no sqlite3 to freeze the backend with)\n'
fi

end
