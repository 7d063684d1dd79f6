#!/bin/sh
# Signals to `mortise run`: while it waits they end the wait, while the command runs they are passed on.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

number_of() {
    kill -l "$1"
}

what "waiting: the queue is left at once, exit code 128+N"
hold "${N}held"
for name in INT TERM HUP QUIT; do
    "$BIN" run "${N}held" -- touch "$DIR/ran" 2>"$DIR/err" &
    waiter=$!
    until_true someone_waits "${N}held" || wrong "no waiter was seen"
    begin=$(ms)
    kill -$name $waiter
    same_code "$name" $((128 + $(number_of $name))) $waiter
    soon "$begin" 8000 "at once" # it would look again after ten seconds
    yes "its place in the queue is gone" nobody_waits "${N}held"
    same "nothing is said about it" "" "$(cat "$DIR/err")"
done

what "from the first instant"
# of the program: a signal that comes between bash's fork and the exec is caught by bash, and may be lost
is_begun() {
    [ "/proc/$1/exe" -ef "$BIN" ] || gone "$1"
}
for later in '' 0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256; do
    "$BIN" run "${N}held" -- touch "$DIR/ran" 2>/dev/null &
    waiter=$!
    looks=0
    until is_begun $waiter || [ $((looks += 1)) -gt 1000000 ]; do
        : # without a pause, which would be longer than the first instants
    done
    [ -z "$later" ] || read -r -t "$later" -u "$NOTHING"
    kill -TERM $waiter
    until_true gone $waiter || {
        wrong "TERM, ${later:-0} s after the start: it goes on"
        kill -KILL $waiter
    }
    wait $waiter; got=$?
    [ "$got" = 143 ] || wrong "TERM, ${later:-0} s after the start: $got"
done
ok "TERM at ten instants of the start"
until_true nobody_waits "${N}held" || wrong "a place in the queue was left behind"
no "no command ran" [ -e "$DIR/ran" ]

what "waiting: what was ignored at the start stays ignored; USR1, USR2 and WINCH do no harm"
# both at once, and for so long that each is seen to wait before it has waited in vain
first=$HOLDER
hold "${N}too"
(
    trap '' HUP
    exec "$BIN" run -w 15s "${N}held" -- true
) 2>/dev/null &
nohup=$!
"$BIN" run -w 15s "${N}too" -- true 2>/dev/null &
waiter=$!
until_true someone_waits "${N}held" || wrong "no waiter was seen"
kill -HUP $nohup
until_true someone_waits "${N}too" || wrong "no waiter was seen"
kill -USR1 $waiter
kill -USR2 $waiter
kill -WINCH $waiter
same_code "HUP under nohup: it waits on" 75 $nohup
same_code "the others: it waits on" 75 $waiter
let_go "$HOLDER"
HOLDER=$first

what "waiting: stopped and continued"
"$BIN" run "${N}held" -- echo had >"$DIR/had" 2>&1 &
waiter=$!
until_true someone_waits "${N}held" || wrong "no waiter was seen"
kill -TSTP $waiter
yes "TSTP stops it" until_true stopped $waiter
kill -CONT $waiter
let_go "$HOLDER"
same_code "continued, it gets its turn" 0 $waiter
same "and its command runs" had "$(cat "$DIR/had")"

what "running: signals reach the command's whole group"
cat >"$DIR/listen" <<'END'
for name in INT TERM HUP QUIT USR1 USR2 WINCH CONT; do
    trap "echo $1 $name >>$2" $name
done
echo ready >>$2
n=0
while [ ! -e "$2.end" ] && [ $n -lt 6000 ]; do sleep 0.01; n=$((n + 1)); done
END
log=$DIR/log
# a pipe, because a shell has its background children ignore INT and QUIT
"$BIN" run "${N}a" -- bash -c "trap : INT TERM HUP QUIT USR1 USR2
    bash $DIR/listen child $log | bash $DIR/listen parent $log" &
wrapper=$!
until_true lines_in "$log" 2 || wrong "the command did not start"
for name in INT TERM HUP QUIT USR1 USR2 WINCH CONT; do
    begin=$(ms)
    kill -$name $wrapper
    yes "$name reaches the command" until_true holds "$log" "^parent $name"
    yes "$name reaches its child" until_true holds "$log" "^child $name"
    soon "$begin" 8000 "at once"
done
yes "the wrapper is still there" alive $wrapper
: >"$log.end"
same_code "and has the command's code" 0 $wrapper

what "running: the command decides what a signal means"
"$BIN" run "${N}a" -- bash -c "trap 'exit 7' TERM; echo >$DIR/ready; while :; do sleep 0.01; done" &
wrapper=$!
until_true filled "$DIR/ready"
kill -TERM $wrapper
same_code "it catches TERM and ends with 7" 7 $wrapper
hold "${N}a"
kill -TERM "$HOLDER"
same_code "it dies of TERM" 143 "$HOLDER"
yes "the lock is free" is_free "${N}a"
hold "${N}a"
kill -INT "$HOLDER"
same_code "it dies of INT" 130 "$HOLDER"

what "running: a command that ignores TERM"
rm -f "$DIR/ready"
"$BIN" run "${N}a" -- bash -c "trap '' TERM; echo \$\$ >$DIR/ready; while :; do sleep 0.01; done" &
wrapper=$!
until_true filled "$DIR/ready"
kill -TERM $wrapper
kill -TERM $wrapper
sleep 0.2
yes "goes on" alive "$(cat "$DIR/ready")"
yes "and so does its lock" is_held "${N}a"
kill -KILL "$(cat "$DIR/ready")"
same_code "until it is killed" 137 $wrapper

what "running: a command that ignored TSTP, and is stopped by its pid long after"
rm -f "$DIR/ready"
"$BIN" run "${N}a" -- bash -c "trap '' TSTP; echo \$\$ >$DIR/ready; while :; do sleep 0.01; done" &
wrapper=$!
until_true filled "$DIR/ready"
kill -TSTP $wrapper
sleep 5.5 # a stop that follows within five seconds is the wrapper's own
kill -STOP "$(cat "$DIR/ready")"
until_true stopped "$(cat "$DIR/ready")"
sleep 0.3
no "the wrapper is not stopped, since nobody would continue it" stopped $wrapper
kill -KILL "$(cat "$DIR/ready")"
kill -CONT $wrapper
same_code "the code" 137 $wrapper

what "running: HUP that was ignored at the start is ignored by the command as well"
rm -f "$DIR/ready"
(
    trap '' HUP
    exec "$BIN" run "${N}a" -- sh -c "echo \$\$ >$DIR/ready; exec sleep 1000"
) &
wrapper=$!
until_true filled "$DIR/ready"
kill -HUP $wrapper
kill -HUP "$(cat "$DIR/ready")"
sleep 0.1
yes "it goes on" alive "$(cat "$DIR/ready")"
kill -TERM $wrapper
same_code "and ends by TERM" 143 $wrapper

what "the command's own signal mask and dispositions are those we were started with"
"$BIN" run "${N}a" -- cat /proc/self/status >"$DIR/inside"
(exec cat /proc/self/status) >"$DIR/outside"
for key in SigBlk SigIgn; do
    same "$key" "$(grep $key "$DIR/outside")" "$(grep $key "$DIR/inside")"
done

end
