#!/bin/sh
# Every exit code of `mortise run`, and the line that says why.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

code() { # runs the command with these arguments; its code in GOT, stderr in $DIR/err
    "$BIN" "$@" >"$DIR/out" 2>"$DIR/err" </dev/null
    GOT=$?
}

what "the command's own code"
for wanted in 0 1 7 75 76 125 255; do
    code run "${N}a" -- sh -c "exit $wanted"
    same "a command that ends with $wanted" $wanted $GOT
done
same "nothing was said" "" "$(cat "$DIR/err")"
yes "the lock is free afterwards" is_free "${N}a"

what "a command that is killed"
for number in 1 2 3 6 9 13 15; do
    code run "${N}a" -- sh -c "ulimit -c 0; kill -$number \$\$"
    same "by signal $number" $((128 + number)) $GOT
done

what "a command that cannot be executed"
code run "${N}a" -- "$DIR/missing"
same "not found" 127 $GOT
has_line "said" "$DIR/err" '^mortise: cannot run ".*/missing": No such file'
code run "${N}a" -- mortise-no-such-program
same "not found in the PATH" 127 $GOT
: >"$DIR/plain"
code run "${N}a" -- "$DIR/plain"
same "not executable" 126 $GOT
has_line "said" "$DIR/err" '^mortise: cannot run ".*/plain": Permission denied'
code run "${N}a" -- "$DIR"
same "a folder" 126 $GOT
yes "the lock is free afterwards" is_free "${N}a"

what "the lock is not had"
hold "${N}held"
code run -n "${N}held" -- touch "$DIR/ran"
same "-n" 75 $GOT
has_line "said" "$DIR/err" "^mortise: \"${N}held\" is held by .* \(pid $HOLDER\) for .*; not waited for\$"
same "one line" 1 "$(wc -l <"$DIR/err")"
begin=$(ms)
code run -w 300ms "${N}held" -- touch "$DIR/ran"
took=$(($(ms) - begin))
same "-w 300ms" 75 $GOT
has_line "said" "$DIR/err" "^mortise: \"${N}held\" is held by .* \(pid $HOLDER\) for .*; gave up after 300 ms\$"
yes "it waited that long ($took ms)" [ $took -ge 300 ]
yes "and not much longer" [ $took -lt 10000 ]
code run -w 0 "${N}held" -- touch "$DIR/ran"
same "-w 0" 75 $GOT
code run -n -E 3 "${N}held" -- touch "$DIR/ran"
same "-n -E 3" 3 $GOT
code run -w .1 -E 0 "${N}held" -- touch "$DIR/ran"
same "a wait must have a digit before the point" 64 $GOT
code run -w 0.1 -E 0 "${N}held" -- touch "$DIR/ran"
same "-w 0.1 -E 0" 0 $GOT
code run --nonblock --conflict-exit-code 42 "${N}held" -- touch "$DIR/ran"
same "the long options" 42 $GOT
no "the command never ran" [ -e "$DIR/ran" ]
let_go "$HOLDER"
yes "the lock is free once its holder ended" until_true is_free "${N}held"

what "a backend that answers readers only: nobody holds the lock, and it cannot be acquired"
if [ "${MORTISE_CONFIG#sqlite:}" != "$MORTISE_CONFIG" ] && can_freeze; then
    config=$MORTISE_CONFIG separator='?'
    [ "${config#*\?}" = "$config" ] || separator='&'
    hold "${N}other"
    freeze # another program writes
    export MORTISE_CONFIG="$config${separator}unreachable_timeout=500ms&close_timeout=500ms"
    code run -w 100ms -E 0 "${N}free" -- touch "$DIR/ran"
    same "no success" 69 $GOT
    has_line "said" "$DIR/err" "^mortise: \"${N}free\" was not acquired; gave up after 100 ms: ."
    code run -w 100ms -E 3 "${N}other" -- touch "$DIR/ran"
    same "but the code of -E if it says who holds the lock" 3 $GOT
    has_line "said" "$DIR/err" "^mortise: \"${N}other\" is held by .* \(pid $HOLDER\) for .*; gave up after 100 ms\$"
    no "the command did not run" [ -e "$DIR/ran" ]
    export MORTISE_CONFIG="$config"

    "$BIN" run -w 100ms -E 3 "${N}free" "${N}freed" -- touch "$DIR/ran" 2>"$DIR/err" &
    runner=$!
    begin=$(ms)
    over() { [ "$(ms)" -gt $((begin + 600)) ] || gone $runner; }
    until_true over # it tries once more by now; if it does not yet, it acquires the lock all the same
    thaw
    same_code "a last try that is answered: the code of the command" 0 $runner
    yes "which ran" [ -e "$DIR/ran" ]
    same "nothing was said" "" "$(cat "$DIR/err")"
    rm -f "$DIR/ran"
    let_go "$HOLDER"
else
    printf 'not checked here: a backend that answers readers only\n'
fi

what "it waits, and gets it"
hold "${N}held"
"$BIN" run -w forever "${N}held" -- echo mine >"$DIR/waited" 2>&1 &
waiter=$!
until_true someone_waits "${N}held" || wrong "no waiter was seen"
no "it waits" [ -s "$DIR/waited" ]
let_go "$HOLDER"
same_code "its code" 0 $waiter
same "its command ran" mine "$(cat "$DIR/waited")"

what "config and usage"
code -C "$DIR/none.conf" run "${N}a" -- true
same "a config that is not there" 78 $GOT
same "one line" 1 "$(wc -l <"$DIR/err")"
code run "${N}a"
same "no command" 64 $GOT
code run
same "no name" 64 $GOT

end
