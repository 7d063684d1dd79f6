#!/bin/sh
# The lock is lost while the command runs: TERM, a grace period, KILL, and everything has ended before the deadline.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

# A command with a child; both log what reaches them. STUBBORN ones ignore TERM.
cat >"$DIR/victim" <<END
[ "\$1" = stubborn ] && trap '' TERM || trap 'echo TERM >>$DIR/log; exit 0' TERM
bash -c '[ '"\$1"' = stubborn ] && trap "" TERM; echo \$\$ >$DIR/child; exec sleep 1000' &
while [ ! -s $DIR/child ]; do sleep 0.01; done
echo \$\$ >$DIR/command
exec 9<>$DIR/never # the read below is a pause of 10 ms without another process
while :; do echo "\${EPOCHREALTIME/[.,]/}000" >>$DIR/beat; read -rt 0.01 -u 9; done
END
mkfifo "$DIR/never"

# The instant of the last step that the command took, in ns.
last_step() {
    tail -n 1 "$DIR/beat"
}

start() { # KIND OPTIONS…
    local kind=$1
    shift
    rm -f "$DIR/child" "$DIR/command" "$DIR/log" "$DIR/beat"
    : >"$DIR/log"
    "$BIN" run "$@" "${N}x" -- bash "$DIR/victim" "$kind" 2>"$DIR/err" &
    WRAPPER=$!
    until_true filled "$DIR/command" || wrong "the command did not start: $(cat "$DIR/err")"
    COMMAND=$(cat "$DIR/command")
    CHILD=$(cat "$DIR/child")
}

break_it() {
    "$BIN" break "${N}x" --token "$(json "${N}x" token)" 2>"$DIR/break.err" ||
        wrong "cannot break it: $(cat "$DIR/break.err")"
}

# The instant of the deadline as the backend knows it: the holder's own, and a little (the drift margin,
# and what it takes to ask).
deadline() {
    local left
    left=$(json "${N}x" remaining_ms)
    echo $(($(ms) + left))
}

# over_before TEXT INSTANT: all are gone, and the last step that was taken was before the instant (which
# is exact; when we see that a process is gone depends on when it is our turn to look)
over_before() {
    local last
    yes "$1: all are gone" until_true all_gone "$COMMAND" "$CHILD"
    last=$(($(last_step) / 1000000))
    yes "$1: before the deadline ($(($2 - last)) ms before, the last step)" [ $last -lt "$2" ]
}

# 12 s: from the renewal that finds out to the keeper's own word there are five seconds
what "broken by an operator: TERM, and exit code 76"
start gentle --ttl 12s
break_it
same_code "the code, though the command ended with 0" 76 $WRAPPER
has_line "said" "$DIR/err" "^mortise: \"${N}x\": the lock was lost; the command is being ended"
same "one line" 1 "$(grep -c ^mortise: "$DIR/err")"
same "the command got TERM once" TERM "$(cat "$DIR/log")"
yes "the child is gone too" all_gone "$COMMAND" "$CHILD"

database=${MORTISE_CONFIG#sqlite:}
database=${database%%\?*}
if [ -f "$database" ] && command -v sqlite3 >/dev/null; then
    what "its row is deleted: the next renewal finds out"
    start gentle --ttl 12s
    until_true sqlite3 "$database" "DELETE FROM mortise_lock" # again while the file is busy
    same_code "the code" 76 $WRAPPER
    has_line "said" "$DIR/err" 'the lock was lost; the command is being ended'
    yes "all are gone" all_gone "$COMMAND" "$CHILD"
else
    echo "not checked here: what happens when the row is deleted (sqlite3 is not installed)"
fi

what "broken, and the command ignores TERM: KILL after the grace"
start stubborn --ttl 9s --grace 1s
broken=$(ms)
break_it
until_true holds "$DIR/err" 'was lost' || wrong "the loss was not seen"
begin=$(ms)
until_true all_gone "$COMMAND" "$CHILD"
took=$(($(ms) - begin))
lived=$(($(last_step) / 1000000 - broken)) # by its last step
yes "it is given a grace of a second ($lived ms)" [ $lived -ge 500 ]
yes "and not much more ($took ms)" [ $took -lt 10000 ]
same_code "the code" 76 $WRAPPER

if command -v python3 >/dev/null; then
    what "broken, and the command has left its process group for the wrapper's and ignores TERM"
    rm -f "$DIR/command" "$DIR/joined"
    cat >"$DIR/leaver.py" <<END
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("/proc/%d/stat" % os.getppid()) as stat: # of the keeper, which has a group of its own
    wrapper = int(stat.read().rpartition(")")[2].split()[1])
os.setpgid(0, os.getpgid(wrapper))
with open("$DIR/joined", "w") as file:
    print(os.getpid(), wrapper, file=file)
signal.pause()
END
    "$BIN" run --ttl 6s --grace 200ms "${N}x" -- python3 "$DIR/leaver.py" 2>"$DIR/err" &
    wrapper=$!
    until_true filled "$DIR/joined" || wrong "it did not join: $(cat "$DIR/err")"
    read -r command joined <"$DIR/joined"
    same "the group that it has joined" $wrapper "$joined"
    break_it
    yes "it is killed" until_true gone "$command"
    kill -KILL "$command" 2>/dev/null
    same_code "the code" 76 $wrapper

    what "and one that does not ignore TERM gets it from the wrapper"
    rm -f "$DIR/joined"
    sed -i /SIG_IGN/d "$DIR/leaver.py"
    "$BIN" run "${N}x" -- python3 "$DIR/leaver.py" 2>"$DIR/err" &
    wrapper=$!
    until_true filled "$DIR/joined" || wrong "it did not join: $(cat "$DIR/err")"
    read -r command joined <"$DIR/joined"
    kill -TERM $wrapper
    yes "it ends" until_true gone "$command"
    kill -KILL "$command" 2>/dev/null
    same_code "the code" 143 $wrapper
else
    printf 'not checked here: a command that leaves its process group (no python3)\n'
fi

what "the next holder is there already while the loser ends"
start stubborn --ttl 9s --grace 200ms
break_it
"$BIN" run -n "${N}x" -- true
same "another gets the lock" 0 $?
same_code "the loser's code" 76 $WRAPPER
yes "the loser's release took nothing from anybody" is_free "${N}x"

what "--on-loss warn: the command goes on, the code is 76 all the same"
"$BIN" run --ttl 12s --on-loss warn "${N}x" -- bash -c "echo >$DIR/warned
    for i in \$(seq 6000); do grep -q lost $DIR/err && echo survived >$DIR/log && exit 3; sleep 0.01; done" 2>"$DIR/err" &
wrapper=$!
until_true filled "$DIR/warned"
break_it
same_code "the code" 76 $wrapper
has_line "said" "$DIR/err" 'the lock was lost; the command goes on without it'
same "the command came to its end" survived "$(cat "$DIR/log")"

what "MORTISE_LEASE_FD reads end of file when the lock is lost"
"$BIN" run --ttl 6s --on-loss warn "${N}x" -- bash -c "echo >$DIR/fd
    timeout 60 cat <&\$MORTISE_LEASE_FD && echo end of file >$DIR/log" 2>/dev/null &
wrapper=$!
: >"$DIR/log"
until_true filled "$DIR/fd"
sleep 0.2
no "not before" [ -s "$DIR/log" ]
break_it
same_code "the code" 76 $wrapper
same "it came" "end of file" "$(cat "$DIR/log")"

what "lost in the very last moment: a command that ends with 0 is not believed"
"$BIN" run --ttl 20s "${N}x" -- bash -c "echo >$DIR/last; for i in \$(seq 6000); do [ -e $DIR/broken ] && exit; sleep 0.01; done" \
    2>"$DIR/err" &
wrapper=$!
until_true filled "$DIR/last"
break_it
: >"$DIR/broken"
same_code "the code" 76 $wrapper
has_line "said" "$DIR/err" "^mortise: \"${N}x\": the lock was lost before the command ended"

if can_freeze; then
    what "the backend does not answer: all is gone before the deadline"
    for kind in gentle stubborn; do
        start $kind --ttl 6s
        freeze
        # read before the freeze is impossible to do at once with it: the ttl from now is later, or the same
        latest=$(($(ms) + 6000))
        over_before $kind $latest
        begin=$(ms)
        same_code "$kind: the code" 76 $WRAPPER
        soon "$begin" 20000 "$kind: a backend that is away does not keep the wrapper"
        has_line "$kind: said" "$DIR/err" 'the lock could not be renewed in time; the command is being ended'
        thaw
        [ $kind = stubborn ] || same "it got TERM" TERM "$(cat "$DIR/log")"
    done

    # the keeper's KILL would be due 300 ms before the deadline; the grace after it is two seconds
    what "a backend that does not answer, and a keeper that is stopped: the wrapper ends all at the deadline"
    for _ in 1 2 3; do # a busy machine may delay one of them
        start stubborn --ttl 6s --grace 2s
        kill -STOP "$(keeper_of $WRAPPER)"
        freeze
        latest=$(($(ms) + 6000))
        yes "all are gone" until_true all_gone "$COMMAND" "$CHILD"
        late=$(($(last_step) / 1000000 - latest))
        same_code "the code" 76 $WRAPPER
        has_line "said" "$DIR/err" 'the keeper process does not answer; the command is killed without it'
        thaw
        [ $late -ge 1500 ] || break
    done
    yes "soon after the deadline ($late ms, the last step)" [ $late -lt 1500 ]

    what "a signal while waiting for a backend that does not answer"
    hold "${N}y"
    "$BIN" run "${N}y" -- true 2>"$DIR/err" &
    waiter=$!
    until_true someone_waits "${N}y" || wrong "no waiter was seen"
    freeze
    begin=$(ms)
    kill -INT $waiter
    same_code "the code" 130 $waiter
    soon "$begin" 20000 "soon"
    thaw
    let_go "$HOLDER"

    what "the backend comes back in time: nobody notices"
    start gentle --ttl 20s
    freeze
    sleep 0.8
    thaw
    left=$(json "${N}x" remaining_ms)
    renewed() { [ "$(json "${N}x" remaining_ms)" -gt "$left" ]; }
    yes "it is renewed" until_true renewed
    yes "the command runs on" alive "$COMMAND"
    kill -TERM $WRAPPER
    same "nothing was said" "" "$(grep -v Terminated "$DIR/err")"
    wait $WRAPPER

    what "the command has ended, what it started goes on: a late renewal keeps that, too"
    "$BIN" run --ttl 12s --grace 4s "${N}z" -- bash -c "bash -c 'trap \"\" TERM; echo \$\$ >$DIR/rest; exec sleep 1000' &
        while [ ! -s $DIR/rest ]; do sleep 0.01; done" 2>"$DIR/err" &
    wrapper=$!
    until_true holds "$DIR/err" 'is still held: the command has ended' || wrong "not said: $(cat "$DIR/err")"
    freeze
    until_true holds "$DIR/err" 'could not be renewed in time' || wrong "not late: $(cat "$DIR/err")"
    thaw # four seconds before KILL
    yes "it is renewed" until_true holds "$DIR/err" 'was renewed after all'
    rest=$(cat "$DIR/rest")
    yes "the rest lives" alive "$rest"
    kill -KILL "$rest" 2>/dev/null
    same_code "the code" 76 $wrapper

    # one of them in the command's group, the other one in a session of its own
    cat >"$DIR/left" <<END
trap 'echo TERM >>$DIR/log.\$1; exit' TERM
echo \$\$ >$DIR/left.\$1
while :; do sleep 0.01; done
END
    killed_while_stopped() { # STOPPED RUNNING
        rm -f "$DIR"/left.* "$DIR/killed" "$DIR"/log.*
        "$BIN" run --ttl 12s --grace 4s "${N}s" -- bash -c "bash $DIR/left member & setsid bash $DIR/left daemon &
            while [ ! -s $DIR/left.member ] || [ ! -s $DIR/left.daemon ]; do sleep 0.01; done
            echo \$\$ >$DIR/killed; exec sleep 1000" 2>"$DIR/err" &
        wrapper=$!
        until_true filled "$DIR/killed" || wrong "the command did not start: $(cat "$DIR/err")"
        kill -STOP "$(cat "$DIR/killed")"
        until_true stopped "$(cat "$DIR/killed")" || wrong "it does not stop"
        kill -KILL "$(cat "$DIR/killed")"
        until_true holds "$DIR/err" 'is still held: the command has ended' || wrong "not said: $(cat "$DIR/err")"
        kill -STOP "$(cat "$DIR/left.$1")"
        until_true stopped "$(cat "$DIR/left.$1")" || wrong "the $1 does not stop"
        freeze
        until_true all_gone "$(cat "$DIR/left.member")" "$(cat "$DIR/left.daemon")" || wrong "not all are gone"
        same_code "the code" 76 $wrapper
        thaw
        same "the $2, which runs, got TERM" TERM "$(cat "$DIR/log.$2")"
        has_line "said" "$DIR/err" 'the lock could not be renewed in time; the command is being ended'
    }
    what "the command was killed while it was stopped: a late renewal ends what it started with TERM first"
    killed_while_stopped member daemon
    killed_while_stopped daemon member
else
    printf 'not checked here: a backend that does not answer (no sqlite3 to freeze it with)\n'
fi

# Four at once. A machine that stands still for half a second at the wrong instant has a lock given up (or, for
# seconds, run out), and that is right: no other end is.
kept_all() {
    local wrappers='' code i given_up=0
    for i in 1 2 3 4; do
        "$BIN" run --ttl 6s "${N}kept$i" -- sleep 7 2>"$DIR/kept$i" &
        wrappers="$wrappers $!"
    done
    i=0
    for wrapper in $wrappers; do
        i=$((i + 1))
        wait "$wrapper"
        code=$?
        [ $code -ne 0 ] || continue
        given_up=$((given_up + 1))
        same "the code of one that is given up" 76 $code
        has_line "said" "$DIR/kept$i" 'could not be renewed in time|was lost'
    done
    [ $given_up -eq 0 ]
}

what "kept over its ttl on a busy machine"
# the order in which the wrappers and their keepers run is then another each time
busy=''
for _ in $(seq $(($(nproc) + 1))); do
    nice -n 10 timeout 90 sh -c 'while :; do :; done' &
    busy="$busy $!"
done
kept_thrice() { kept_all || kept_all || kept_all; }
yes "seven seconds on a ttl of 6 s, in one of three rounds at the latest" kept_thrice
# shellcheck disable=SC2086 # words
kill $busy

what "the wrapper is stopped (SIGSTOP) and the command runs on: the keeper ends it before the deadline"
start stubborn --ttl 6s
kill -STOP $WRAPPER
latest=$(deadline)
over_before "stopped wrapper" "$latest"
kill -CONT $WRAPPER
same_code "continued, it ends with" 76 $WRAPPER
has_line "said" "$DIR/err" 'could not be renewed in time|was lost'

what "stopped with TSTP for longer than the ttl: the command does not go on"
start stubborn --ttl 6s
kill -TSTP $WRAPPER
yes "the command is stopped first" until_true stopped "$COMMAND"
yes "its child too" until_true stopped "$CHILD"
yes "then the wrapper" until_true stopped $WRAPPER
last=$(last_step)
until_true is_free "${N}x" || wrong "the lock did not run out"
yes "all are gone by then" until_true all_gone "$COMMAND" "$CHILD"
kill -CONT $WRAPPER
same_code "continued, it ends with" 76 $WRAPPER
same "the command did not take another step" "$last" "$(last_step)"

what "stopped with TSTP and continued in time: the command goes on"
start gentle --ttl 10s
kill -TSTP $WRAPPER
until_true stopped $WRAPPER || wrong "the wrapper does not stop"
last=$(last_step)
kill -CONT $WRAPPER
another_beat() { [ "$(last_step)" != "$last" ]; }
yes "it goes on" until_true another_beat
kill -TERM $WRAPPER
same_code "and ends as it likes" 0 $WRAPPER

what "a lock that is broken while all are stopped: the command does not go on"
start stubborn --ttl 20s --grace 300ms
kill -TSTP $WRAPPER
until_true stopped $WRAPPER || wrong "the wrapper does not stop"
last=$(last_step)
break_it
kill -CONT $WRAPPER
same_code "the code" 76 $WRAPPER
yes "all are gone" all_gone "$COMMAND" "$CHILD"
same "the command did not take another step" "$last" "$(last_step)"

what "a grace that does not fit is cut, and said"
"$BIN" run --ttl 20s --grace 1h "${N}x" -- true 2>"$DIR/err"
same "it runs" 0 $?
has_line "said" "$DIR/err" "^mortise: \"${N}x\": a grace of 1 h does not fit in the ttl and is limited to"

end
