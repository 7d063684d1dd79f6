#!/bin/sh
# No memory: a message between the wrapper and its keeper, the environment of a program, or room for a list or a text, is refused for it.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

[ -n "${MORTISE_REFUSE:-}" ] || skip "MORTISE_REFUSE is not set: the library of refuse.c"
START=1 SIGNAL=2 LOOK=4 DONE=9

ends() { # PID
    until_true gone "$1" && return
    kill -KILL "$1"
    return 1
}

what "the message that starts the command: it is sent again"
LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_SEND="$START 5" \
    "$BIN" run "${N}a" -- touch "$DIR/ran" 2>"$DIR/err" &
refused=$!
yes "it ends" ends $refused
same_code "the code" 0 $refused
yes "the command ran" [ -e "$DIR/ran" ]

what "the same, without end: the lock is not held for nothing"
begin=$(ms)
LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_SEND="$START 1000000" \
    "$BIN" run "${N}b" -- touch "$DIR/never" 2>"$DIR/err" &
refused=$!
yes "it ends" ends $refused
same_code "the code says that no process could be started" 71 $refused
soon "$begin" 20000 "soon"
has_line "it says so" "$DIR/err" 'the keeper process was killed; the command was not started'
no "the command never ran" [ -e "$DIR/never" ]
yes "the lock is free" is_free "${N}b"

what "a wrapper that is stopped before it starts the command, until another holds the lock: no command without the lock"
LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_STOP=$START \
    "$BIN" run --ttl 1s --on-loss=warn "${N}f" -- touch "$DIR/late" 2>"$DIR/err" &
refused=$!
yes "it is stopped" until_true stopped $refused
hold "${N}f"
kill -CONT $refused
yes "it ends" ends $refused
same_code "the code" 76 $refused
has_line "it says so" "$DIR/err" 'mortise: .* the lock (was lost|could not be renewed in time); the command '
no "the command never ran" [ -e "$DIR/late" ]
yes "the other still holds it" is_held "${N}f"
let_go "$HOLDER"

what "a lock that is lost before the message that starts the command finds memory"
LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_STOP=$START MORTISE_REFUSE_SEND="$START 50" \
    "$BIN" run --ttl 2s --on-loss=warn "${N}g" -- touch "$DIR/lost" 2>"$DIR/err" &
refused=$!
yes "it is stopped" until_true stopped $refused
"$BIN" break "${N}g" --token "$(json "${N}g" token)" >"$DIR/out" 2>&1
kill -CONT $refused
yes "it ends" ends $refused
same_code "the code" 76 $refused
has_line "it says so" "$DIR/err" 'the lock was lost; the command was not started'
no "the command never ran" [ -e "$DIR/lost" ]

what "a signal for the command: it is sent again"
LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_SEND="$SIGNAL 5" \
    "$BIN" run "${N}c" -- sh -c "echo >$DIR/started; exec sleep 1000" 2>"$DIR/err" &
refused=$!
until_true filled "$DIR/started"
kill -TERM $refused
yes "it ends" ends $refused
same_code "TERM has ended the command" 143 $refused

what "signals that are kept: the last of a stop and a SIGCONT counts"
LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_SEND="$SIGNAL 60" \
    "$BIN" run "${N}i" -- sh -c "trap 'echo >$DIR/usr1' USR1; echo >$DIR/ready; while :; do sleep 0.1; done" 2>"$DIR/err" &
refused=$!
until_true filled "$DIR/ready"
for signal in CONT TSTP CONT USR1 USR2; do # each is read before the next is sent: pending ones would undo each other
    until_true holds "/proc/$refused/status" '^ShdPnd:[[:space:]]*0+$'
    [ $signal = USR2 ] || kill -$signal $refused
done
until_true filled "$DIR/usr1" # a wrapper that stops breaks this loop, as bash does when a job stops
yes "the command runs at the end" filled "$DIR/usr1"
kill -CONT $refused
kill -TERM $refused
yes "it ends" ends $refused

what "the question whether a renewal has come: it is asked again, and a healthy command goes on"
LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_SEND="$LOOK 1" "$BIN" run --ttl 4s "${N}h" -- sleep 6 2>"$DIR/err"
same "the command's code" 0 $?
no "nothing is said: $(cat "$DIR/err")" [ -s "$DIR/err" ]

what "the message that all have ended: the wrapper sees it all the same"
LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_SEND="$DONE 1000000" "$BIN" run "${N}d" -- sh -c 'exit 5' 2>"$DIR/err" &
refused=$!
yes "it ends" ends $refused
same_code "the command's code" 5 $refused
yes "the lock is free" is_free "${N}d"

what "the token in the environment: no command without it"
LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_SETENV=MORTISE_TOKEN \
    "$BIN" run "${N}e" -- touch "$DIR/without" 2>"$DIR/err"
same "the code" 71 $?
has_line "it says so" "$DIR/err" '^mortise: cannot run .*touch.*: Cannot allocate memory'
no "the command never ran" [ -e "$DIR/without" ]
yes "the lock is free" is_free "${N}e"

what "the configuration for serve and bench: none of them runs with another one"
for pair in serve:MORTISE_CONFIG bench:MORTISE_BENCH_CONFIG; do
    LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_SETENV=${pair#*:} "$BIN" -C "sqlite:$DIR/b.db" ${pair%:*} --help >"$DIR/out" 2>"$DIR/err"
    same "${pair%:*}: the code" 71 $?
    has_line "it says so" "$DIR/err" "^mortise: cannot set ${pair#*:}: Cannot allocate memory"
    no "it does not run" filled "$DIR/out"
done

if command -v script >/dev/null; then
    what "the list that watch shows on a terminal: it restores the terminal"
    hold "${N}j"
    script -qec "LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_ROOM=1000 '$BIN' watch '$N'; echo code \$?; stty -a" \
        "$DIR/typescript" >/dev/null 2>&1 </dev/null
    has_line "it leaves its screen, and says why" "$DIR/typescript" $'\033\\[\\?1049l.*mortise: out of memory'
    has_line "the code" "$DIR/typescript" '^code 71'
    has_line "lines are edited" "$DIR/typescript" '(^| )icanon'
    what "what watch draws: the same"
    script -qec "LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_STREAM=20 '$BIN' watch --interval 50ms '$N'; echo code \$?; stty -a" \
        "$DIR/typescript" >/dev/null 2>&1 </dev/null
    has_line "it leaves its screen, and says why" "$DIR/typescript" $'\033\\[\\?1049l.*mortise: out of memory'
    has_line "the code" "$DIR/typescript" '^code 71'
    has_line "lines are edited" "$DIR/typescript" '(^| )icanon'
    let_go "$HOLDER"
else
    echo "not checked here: watch on a terminal (no script)"
fi

end
