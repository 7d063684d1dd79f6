#!/bin/sh
# The command's processes: the lock is released only when all have ended, and none survives a killed wrapper.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

# A command with a child in its group, a grandchild, and a daemon in a session of its own whose parent
# is dead. Writes their pids, then runs "$1".
cat >"$DIR/family" <<END
sh -c 'echo \$\$ >$DIR/child; sleep 1000 & echo \$! >$DIR/grandchild; wait' &
sh -c 'setsid sh -c "echo \\\$\\\$ >$DIR/daemon; exec sleep 1000" &'
while [ ! -s $DIR/child ] || [ ! -s $DIR/grandchild ] || [ ! -s $DIR/daemon ]; do sleep 0.01; done
echo \$\$ >$DIR/command
eval "\$1"
END

family() { # OPTIONS… -- WHAT: starts it in the background, WRAPPER; FAMILY are the pids
    rm -f "$DIR/child" "$DIR/grandchild" "$DIR/daemon" "$DIR/command"
    local then=${*: -1}
    "$BIN" run "${@:1:$#-1}" "${N}f" -- sh "$DIR/family" "$then" 2>"$DIR/err" &
    WRAPPER=$!
    until_true filled "$DIR/command" || wrong "the family did not start: $(cat "$DIR/err")"
    FAMILY="$(cat "$DIR/child") $(cat "$DIR/grandchild") $(cat "$DIR/daemon") $(cat "$DIR/command")"
    KEEPER=$(keeper_of $WRAPPER)
}

ends() { # PID: as same_code, but it must not hang
    until_true gone "$1" || {
        grep -E '^(State|TracerPid)' "/proc/$1/status"
        kill -KILL "$1"
    }
}

runs() { # PID
    alive "$1" && ! stopped "$1"
}

# bash ends its loops when one of its own jobs is stopped; a job of this shell is not one of the subshell.
seen() ( until_true "$@" )

what "released only when the whole family is gone"
family 'exit 5'
yes "the command ends" until_true gone "$(cat "$DIR/command")"
yes "the wrapper stays" alive $WRAPPER
yes "the lock is held" is_held "${N}f"
yes "it says why" until_true holds "$DIR/err" "^mortise: \"${N}f\" is still held: the command has ended, but"
has_line "naming one" "$DIR/err" 'sh \(pid [0-9]+\)|sleep \(pid [0-9]+\)'
kill "$(cat "$DIR/grandchild")"
yes "the child ends with its own" until_true gone "$(cat "$DIR/child")"
sleep 0.1
yes "the daemon is left: the lock is held" is_held "${N}f"
kill "$(cat "$DIR/daemon")"
same_code "the last one gone, it ends with the command's code" 5 $WRAPPER
yes "the lock is free" is_free "${N}f"
yes "no keeper is left" until_true gone "$KEEPER"

what "it says so although signals come more often than it would look"
: >"$DIR/err"
"$BIN" run "${N}f" -- sh -c "sh -c 'echo \$\$ >$DIR/rest; exec sleep 1000' & while [ ! -s $DIR/rest ]; do sleep 0.01; done" 2>"$DIR/err" &
wrapper=$!
while kill -CHLD $wrapper; do sleep 0.05; done 2>/dev/null &
signals=$!
yes "said" until_true holds "$DIR/err" "^mortise: \"${N}f\" is still held: the command has ended, but"
kill "$(cat "$DIR/rest")"
same_code "the code" 0 $wrapper
wait $signals

what "TERM after the command has ended reaches what is left, the daemon too"
family 'exit 0'
until_true gone "$(cat "$DIR/command")"
begin=$(ms)
kill -TERM $WRAPPER
same_code "the command's code" 0 $WRAPPER
yes "all are gone" all_gone $FAMILY
yes "at once ($(($(ms) - begin)) ms)" [ $(($(ms) - begin)) -lt 10000 ]

what "and the child of a daemon, though its parent lives until then"
"$BIN" run "${N}f" -- sh -c "setsid sh -c 'sh -c \"echo \\\$\\\$ >$DIR/below; exec sleep 1000\"; :' &
    while [ ! -s $DIR/below ]; do sleep 0.01; done; echo \$\$ >$DIR/command.f" 2>"$DIR/err" &
wrapper=$!
until_true filled "$DIR/command.f" || wrong "the daemon did not start: $(cat "$DIR/err")"
until_true gone "$(cat "$DIR/command.f")"
kill -TERM $wrapper
yes "it is gone" until_true gone "$(cat "$DIR/below")"
kill -KILL "$(cat "$DIR/below")" 2>/dev/null
same_code "the command's code" 0 $wrapper

stop() { # FILE… with pids
    local file
    for file in "$@"; do
        kill -STOP "$(cat "$DIR/$file")"
        until_true stopped "$(cat "$DIR/$file")" || wrong "the $file does not stop"
    done
}

what "TERM after the command has ended ends what is stopped, too"
family 'exit 0'
until_true gone "$(cat "$DIR/command")"
stop child grandchild daemon
no "the wrapper runs on: they were stopped by their pids" stopped $WRAPPER
kill -TERM $WRAPPER
ends $WRAPPER
same_code "the command's code" 0 $WRAPPER
yes "all are gone" until_true all_gone $FAMILY

what "TERM that ends the command ends what was stopped before"
family 'exec sleep 1000'
stop child grandchild
kill "$(cat "$DIR/daemon")" # nobody but the group gets a signal while the command lives
until_true gone "$(cat "$DIR/daemon")"
kill -TERM $WRAPPER
ends $WRAPPER
same_code "the command's code" 143 $WRAPPER
yes "all are gone" until_true all_gone $FAMILY

what "TSTP after the command has ended stops what is left of its group, and the wrapper"
family "sleep 1000 & echo \$! >$DIR/second; exit 3"
until_true gone "$(cat "$DIR/command")"
second=$(cat "$DIR/second")
child=$(cat "$DIR/child")
daemon=$(cat "$DIR/daemon")
stop_and_go() { # WHICH
    kill -TSTP $WRAPPER
    yes "the $1 time: the group is stopped" seen stopped "$child"
    yes "all of it" seen stopped "$second"
    yes "the wrapper too" seen stopped $WRAPPER
    no "but not a daemon" stopped "$daemon"
    kill -CONT $WRAPPER
    yes "continued, the group goes on" seen runs "$child"
    yes "all of it" seen runs "$second"
    yes "and the wrapper" seen runs $WRAPPER
}
stop_and_go first
stop_and_go second
kill -TERM $WRAPPER
ends $WRAPPER
same_code "the command's code" 3 $WRAPPER
yes "all are gone" until_true all_gone $FAMILY "$second"

what "TSTP and TERM one after the other: the wrapper does not stop while what is left goes on"
# It starts no process: one that is stopped while it is being forked may miss the SIGCONT. It tells of a signal behind the trap: one that
# comes at the end of a trap is lost in bash.
mkfifo "$DIR/never"
cat >"$DIR/outlives" <<END
terms=0 told=0
trap 'terms=\$((terms + 1))' TERM
exec 9<>$DIR/never
echo \$\$ >$DIR/rest.o
while :; do
    read -rt 0.01 -u 9
    while [ \$told -lt \$terms ]; do
        echo TERM >>$DIR/terms
        told=\$((told + 1))
    done
done
END
"$BIN" run "${N}f" -- sh -c "bash $DIR/outlives & while [ ! -s $DIR/rest.o ]; do sleep 0.01; done" 2>"$DIR/err" &
WRAPPER=$!
until_true holds "$DIR/err" 'is still held: the command has ended' || wrong "not said: $(cat "$DIR/err")"
rest=$(cat "$DIR/rest.o")
both_go_on() { # whichever signal is seen first, both may be stopped, or about to be
    ! { stopped $WRAPPER && stopped "$rest"; } || kill -CONT $WRAPPER
    runs $WRAPPER && runs "$rest" && lines_in "$DIR/terms" $round
}
# The report of the stop is to come after the wrapper has read TERM: it depends on the moment between the two.
forty_rounds() (
    for round in $(seq 40); do
        kill -TSTP $WRAPPER
        for ((spin = 0; spin < round; spin++)); do :; done
        kill -TERM $WRAPPER
        until_true both_go_on || exit 1
    done
)
yes "both go on, each time" forty_rounds
kill -KILL "$rest"
# The last TSTP may still be on its way. No CONT to a process that runs: it discards a pending SIGSTOP. LeakSanitizer attaches by one at
# the end of a process, and would wait for it for ever.
continued_to_its_end() {
    ! stopped $WRAPPER || kill -CONT $WRAPPER
    gone $WRAPPER
}
seen continued_to_its_end
ends $WRAPPER
same_code "the command's code" 0 $WRAPPER

what "TSTP when only a daemon is left: the wrapper runs on, and renews"
family --ttl 18s 'exit 4'
until_true gone "$(cat "$DIR/command")"
kill "$(cat "$DIR/grandchild")"
until_true gone "$(cat "$DIR/child")"
kill -TSTP $WRAPPER
held_until() { # now, if it is free
    local now left
    now=$(ms)
    left=$(json "${N}f" remaining_ms)
    echo $((now + ${left:-0}))
}
before=$(held_until)
renewed_or_over() { gone $WRAPPER || [ "$(held_until)" -gt $((before + 500)) ]; }
yes "it renews" until_true renewed_or_over
alive $WRAPPER || wrong "it has ended: $(cat "$DIR/err")"
kill "$(cat "$DIR/daemon")"
ends $WRAPPER
same_code "it ends with the command's code" 4 $WRAPPER

what "kill -9 of the wrapper: the keeper ends all at once"
family 'while :; do sleep 1; done'
begin=$(ms)
kill -KILL $WRAPPER
yes "all are gone" until_true all_gone $FAMILY
soon "$begin" 10000 "at once"
yes "and the keeper too" until_true gone "$KEEPER"
yes "it says so" until_true holds "$DIR/err" '^mortise: the process that held the lock was killed'
yes "the keeper has released the lock" is_free "${N}f"

what "kill -9 of the wrapper after the lock was lost, with --on-loss warn: the command has time for its TERM"
# The command has 0.4 s after TERM. A machine may stand still for longer, so there are three rounds.
ends_in_time() {
    rm -f "$DIR/cleaned"
    family --ttl 500ms --on-loss warn "trap 'sleep 0.1; echo >$DIR/cleaned; exit' TERM; while :; do sleep 1; done"
    begin=$(ms)
    "$BIN" break "${N}f" --token "$(json "${N}f" token)" 2>>"$DIR/break.err"
    until_true holds "$DIR/err" 'the lock was lost|could not be renewed' || wrong "not said: $(cat "$DIR/err")"
    deadline_passed() { [ "$(ms)" -gt $((begin + 500)) ]; }
    until_true deadline_passed
    kill -KILL $WRAPPER
    until_true all_gone $FAMILY "$KEEPER" || wrong "not all are gone"
    wait $WRAPPER
    [ -e "$DIR/cleaned" ]
}
thrice() { "$@" || "$@" || "$@"; }
yes "it cleans up" thrice ends_in_time

what "kill -9 of the wrapper's whole group, as a shell's kill %1 does"
family 'while :; do sleep 1; done'
kill -KILL -- -$WRAPPER
yes "all are gone" until_true all_gone $FAMILY "$KEEPER"
yes "the keeper has released the lock" is_free "${N}f"

what "kill -9 of the wrapper, and the family ignores TERM"
family 'trap "" TERM; kill -STOP $(cat '"$DIR"'/child); while :; do sleep 1; done'
begin=$(ms)
kill -KILL $WRAPPER
early=0
while alive "$(cat "$DIR/command")"; do # it lives for the grace: free before its end is wrong
    is_free "${N}f" && alive "$(cat "$DIR/command")" && early=1
done
same "the lock is held as long as the family lives" 0 $early
yes "all are gone" until_true all_gone $FAMILY
soon "$begin" 10000 "at once"
yes "the lock is free soon" until_true is_free "${N}f"

what "kill -9 of the wrapper and of the keeper: the lock ends with its ttl"
family 'while :; do sleep 1; done'
kill -KILL $WRAPPER "$KEEPER"
yes "the command is gone" until_true gone "$(cat "$DIR/command")"
yes "the lock is held" is_held "${N}f"
kill -KILL $FAMILY 2>/dev/null
"$BIN" break "${N}f" --token "$(json "${N}f" token)" 2>/dev/null

what "kill -9 of the keeper: the wrapper ends all and gives the lock back"
family 'while :; do sleep 1; done'
kill -KILL "$KEEPER"
same_code "the code says killed" 137 $WRAPPER
yes "all are gone" all_gone $FAMILY
yes "the lock is free" is_free "${N}f"
has_line "it says so" "$DIR/err" "^mortise: \"${N}f\": the keeper process was killed"

what "kill -9 of the wrapper while it waits"
hold "${N}g"
"$BIN" run "${N}g" -- touch "$DIR/ran" 2>/dev/null &
waiter=$!
until_true someone_waits "${N}g"
keeper=$(keeper_of $waiter)
kill -KILL $waiter
wait $waiter 2>/dev/null
yes "its keeper ends" until_true gone "$keeper"
let_go "$HOLDER"
"$BIN" run -w 60 "${N}g" -- true
same "the next one gets the lock" 0 $?
no "its command never ran" [ -e "$DIR/ran" ]

what "kill -9 of the keeper while the wrapper waits"
hold "${N}g"
"$BIN" run "${N}g" -- touch "$DIR/ran" 2>"$DIR/err" &
waiter=$!
until_true someone_waits "${N}g"
kill -KILL "$(keeper_of $waiter)"
yes "it ends although the lock is held" until_true gone $waiter
same_code "the code says that no process could be started" 71 $waiter
yes "it has left the queue" until_true nobody_waits "${N}g"
yes "the lock is held" is_held "${N}g"
let_go "$HOLDER"
no "its command never ran" [ -e "$DIR/ran" ]
has_line "it says so" "$DIR/err" 'the keeper process was killed; the command was not started'
yes "the lock is free" is_free "${N}g"

what "the command is in a group of its own, and so is the keeper"
hold "${N}a"
group() { sed 's/.*) . [0-9]* \([0-9]*\) .*/\1/' "/proc/$1/stat"; }
keeper=$(keeper_of "$HOLDER")
same "the command leads its group" "$HOLDER_COMMAND" "$(group "$HOLDER_COMMAND")"
same "the keeper leads its own" "$keeper" "$(group "$keeper")"
no "neither is the wrapper's" [ "$(group "$HOLDER")" = "$(group "$keeper")" ]
threads=1
grep -q libtsan "/proc/$keeper/maps" && threads=2 # the sanitizer's own
same "the keeper has one thread" $threads "$(ls "/proc/$keeper/task" | wc -l)"
let_go "$HOLDER"

what "without /proc: a loss kills the rest of the command's group, although the command has ended"
bare() { # COMMAND…
    # shellcheck disable=SC2016 # the inner shell reads the words
    unshare -m sh -c 'id=$(cat /proc/sys/kernel/random/boot_id) && mount -t tmpfs none /proc &&
        mkdir -p /proc/sys/kernel/random && echo "$id" >/proc/sys/kernel/random/boot_id && exec "$@"' sh "$@"
}
if ldd "$BIN" | grep -q 'lib[at]san' || ! (bare true) 2>/dev/null; then
    printf 'not checked here: a sanitizer needs /proc, or this user cannot hide it\n'
else
    bare "$BIN" run --ttl 9s --grace 200ms "${N}p" -- sh -c "sh -c 'trap \"\" TERM; echo \$\$ >$DIR/left; exec sleep 1000' &
        while [ ! -s $DIR/left ]; do sleep 0.01; done; echo \$\$ >$DIR/command.p" 2>"$DIR/err" &
    wrapper=$!
    until_true filled "$DIR/command.p" || wrong "the command did not start: $(cat "$DIR/err")"
    until_true gone "$(cat "$DIR/command.p")"
    "$BIN" break "${N}p" --token "$(json "${N}p" token)" 2>"$DIR/break.err" || wrong "$(cat "$DIR/break.err")"
    yes "it is gone" until_true gone "$(cat "$DIR/left")"
    kill -KILL "$(cat "$DIR/left")" 2>/dev/null
    same_code "the code" 76 $wrapper
fi

what "many processes that come and go leave nothing behind"
"$BIN" run "${N}a" -- bash -c 'for i in $(seq 200); do (true &) ; done'
same "two hundred orphans" 0 $?
yes "the lock is free" is_free "${N}a"

end
