#!/bin/sh
# How `mortise run` ends: while the release hangs, while a late renewal has its grace period, with processes that cannot be
# killed, and as PID 1.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

mkfifo "$DIR/up" "$DIR/go"
# The command writes to `up` when it runs, and ends when `go` is written to.
waits="echo \$\$ >$DIR/up; read -r _ <$DIR/go"

# Open for both directions, so that neither the opening nor a command that never comes blocks for ever.
exec {UP}<>"$DIR/up"

started() { # waits for the command of the wrapper; COMMAND is its pid
    COMMAND=
    read -r -t "$LIMIT" COMMAND <&"$UP" || wrong "the command did not start: $(cat "$DIR/err")"
}

go() { # ends the command
    timeout "$LIMIT" sh -c "echo >'$DIR/go'" || wrong "the command does not read: $(cat "$DIR/err")"
}

break_it() {
    "$BIN" break "$1" --token "$(json "$1" token)" >>"$DIR/break.err" 2>&1
}

if can_freeze; then
    config=$MORTISE_CONFIG
    MORTISE_CONFIG=$(slow_to_give_up)
    what "the release hangs: a signal bounds it, and does not change the code"
    mkfifo "$DIR/out"
    cat "$DIR/out" >"$DIR/err" &
    reader=$!
    "$BIN" run --ttl 10m "${N}a" -- sh -c "$waits" >"$DIR/out" 2>&1 &
    wrapper=$!
    started
    keeper=$(keeper_of $wrapper)
    freeze
    go
    until_true gone "$COMMAND"
    begin=$(ms)
    kill -TERM $wrapper
    same_code "TERM after a command that ended with 0" 0 $wrapper
    soon "$begin" 20000 "soon" # alone it would take a minute
    yes "who reads its output sees the end" until_true gone $reader
    soon "$begin" 20000 "as soon"
    has_line "said" "$DIR/err" "^mortise: \"${N}a\" was not released in time: it stays locked, at the latest until its ttl"
    yes "the keeper goes on" alive "$keeper"
    thaw
    yes "and releases the lock once the backend answers" until_true is_free "${N}a"
    yes "then it ends" until_true gone "$keeper"

    what "the command is ended by the signal, and then the release hangs"
    "$BIN" run --ttl 10m "${N}a" -- sh -c "$waits" 2>"$DIR/err" &
    wrapper=$!
    started
    keeper=$(keeper_of $wrapper)
    freeze
    begin=$(ms)
    kill -TERM $wrapper
    same_code "the command's code" 143 $wrapper
    soon "$begin" 20000 "soon"
    begin=$(ms)
    kill -TERM "$keeper"
    yes "TERM ends the keeper" until_true gone "$keeper"
    soon "$begin" 20000 "soon"
    thaw
    break_it "${N}a"

    what "a signal that the command took long before its end does not shorten the release"
    # With a time limit: a shell that gets a signal just before it reads runs its trap when it has read.
    "$BIN" run --ttl 10m "${N}a" -- bash -c "exec 3<>$DIR/go; trap 'echo >$DIR/up' HUP; echo \$\$ >$DIR/up
        until read -r -t 0.1 _ <&3; do :; done" 2>"$DIR/err" &
    wrapper=$!
    started
    kill -HUP $wrapper
    read -r -t "$LIMIT" _ <&"$UP" || wrong "the command did not get HUP"
    sleep 6 # it counts for five seconds
    freeze
    go
    until_true gone "$COMMAND"
    begin=$(ms)
    over_in_4s() { gone $wrapper || [ $(($(ms) - begin)) -gt 4000 ]; }
    until_true over_in_4s
    yes "the release goes on after the two seconds that a signal gives it" alive $wrapper
    thaw
    same_code "and is done once the backend answers" 0 $wrapper
    same "nothing is said" "" "$(cat "$DIR/err")"
    yes "it is free" is_free "${N}a"
    MORTISE_CONFIG=$config
else
    echo "not checked here: a release that hangs (no sqlite3 to freeze the backend with)"
fi

# Three rounds: a machine that stands still for two seconds at the wrong instant makes the lease end.
thrice() {
    "$@" || "$@" || "$@"
}

sleep_until() { # INSTANT in ms
    local left=$(($1 - $(ms)))
    [ $left -le 0 ] || sleep "$((left / 1000)).$(printf %03d $((left % 1000)))"
}

held_until() { # NAME: the instant in ms at which its lock ends; now, if it is free
    local now left
    now=$(ms)
    left=$(json "$1" remaining_ms)
    echo $((now + ${left:-0}))
}

# ttl 8 s and a grace of 3 s: TERM is due 3.4 s before the deadline, KILL 0.4 s before it.
stopped_late() {
    local code latest
    "$BIN" run --ttl 8s --grace 3s "${N}b" -- sh -c "trap 'echo TERM >>$DIR/log' TERM; $waits" 2>"$DIR/err" &
    wrapper=$!
    : >"$DIR/log"
    started
    kill -TSTP $wrapper
    until_true stopped $wrapper || wrong "it does not stop"
    latest=$(held_until "${N}b")
    sleep_until $((latest - 2400))
    kill -CONT $wrapper
    until_true renewed_past "$latest" || return 1
    echo >"$DIR/go" &
    wait $wrapper
    code=$?
    kill %% 2>/dev/null # the writer, if nobody reads any more
    [ $code = 0 ] && [ ! -s "$DIR/log" ] && [ ! -s "$DIR/err" ]
}

renewed_past() { # INSTANT
    gone $wrapper || [ "$(held_until "${N}b")" -gt $(($1 + 1000)) ]
}

what "stopped until TERM is due, then continued: the renewal comes first, and the command goes on"
yes "it ends with 0 and never got TERM" thrice stopped_late

if can_freeze; then
    # as above, but nothing has to be ended in time: only the deadline counts
    warned_late() {
        local latest code
        "$BIN" run --ttl 8s --grace 3s --on-loss warn "${N}b" -- sh -c "$waits" 2>"$DIR/err" &
        wrapper=$!
        started
        latest=$(held_until "${N}b")
        freeze
        sleep_until $((latest - 2000))
        thaw
        until_true renewed_past "$latest" || return 1
        echo >"$DIR/go" &
        wait $wrapper
        code=$?
        kill %% 2>/dev/null
        [ $code = 0 ] && [ ! -s "$DIR/err" ]
    }
    what "--on-loss warn: a renewal may come until the deadline"
    yes "it is not called late before" thrice warned_late

    # TERM is due 3.4 s before the deadline, KILL 0.4 s before it; the renewal comes between the two.
    renewed_in_grace() { # WANTED SAID COMMAND-LINE
        local code latest
        "$BIN" run --ttl 8s --grace 3s "${N}b" -- sh -c "$3" 2>"$DIR/err" &
        wrapper=$!
        started
        latest=$(held_until "${N}b")
        freeze
        until_true holds "$DIR/err" 'could not be renewed in time; the command is being ended' ||
            wrong "it is not late: $(cat "$DIR/err")"
        begin=$(ms)
        thaw
        until_true renewed_past "$latest"
        if [ -n "$2" ]; then # said when KILL would have been due
            until_true said_or_gone "$2"
            sleep_until $((begin + 4000))
        fi
        echo >"$DIR/go" &
        wait $wrapper
        code=$?
        kill %% 2>/dev/null
        [ $code = "$1" ] || echo "the code is $code, $(($(ms) - begin)) ms after TERM: $(cat "$DIR/err")"
        [ $code = "$1" ] && holds "$DIR/err" "$2"
    }
    said_or_gone() { gone $wrapper || holds "$DIR/err" "$1"; }
    ignores="trap '' TERM; $waits"

    what "renewed after TERM and before KILL"
    yes "a command that ignores TERM and goes on ends with its own code" \
        thrice renewed_in_grace 0 'renewed after all' "$ignores"
    yes "one that ends in the grace ends with 76" thrice renewed_in_grace 76 '' "$ignores"
    yes "one that dies of TERM after the grace, with 76" thrice renewed_in_grace 76 'renewed after all' \
        "$ignores; exec env --default-signal=TERM sh -c 'kill -TERM \$\$'"
fi

what "a keeper that is stopped: the wrapper ends all without it"
"$BIN" run --ttl 12s --grace 100ms "${N}c" -- sh -c "$waits" 2>"$DIR/err" &
wrapper=$!
started
kill -STOP "$(keeper_of $wrapper)"
break_it "${N}c"
same_code "the code" 76 $wrapper
has_line "said" "$DIR/err" "^mortise: \"${N}c\": the keeper process does not answer; the command is killed"
yes "the command is gone" gone "$COMMAND"

what "a keeper that is stopped: a signal to the wrapper reaches the command all the same"
"$BIN" run "${N}c" -- sh -c "$waits" 2>"$DIR/err" &
wrapper=$!
started
kill -STOP "$(keeper_of $wrapper)"
kill -TERM $wrapper
yes "the command ends" until_true gone "$COMMAND"
kill -CONT "$(keeper_of $wrapper)" 2>/dev/null
same_code "the code" 143 $wrapper

what "a keeper that is stopped while the wrapper waits: the wrapper ends without it"
hold "${N}c"
"$BIN" run "${N}c" -- true 2>"$DIR/err" &
waiter=$!
until_true someone_waits "${N}c" || wrong "no waiter was seen"
keeper=$(keeper_of $waiter)
kill -STOP "$keeper"
kill -TERM $waiter
yes "it ends" until_true gone $waiter
yes "and its keeper" gone "$keeper"
kill -CONT "$keeper" 2>/dev/null
same_code "the code" 143 $waiter
let_go "$HOLDER"

# A set-uid program that becomes root for good cannot be killed by a wrapper that is another user.
other=$DIR/other
if [ "$(id -u)" = 0 ] && cp "$(command -v setpriv)" "$other" && chmod 4755 "$other" &&
    chmod 755 "$DIR" && [ "$(setpriv --reuid 65534 --clear-groups "$other" --reuid 0 id -u)" = 0 ]; then
    what "a command that cannot be killed, because it is another user's"
    install -d -o 65534 -m 755 "$DIR/theirs" # whoever owns a database owns its folder
    as_other() {
        setpriv --reuid 65534 --clear-groups env MORTISE_CONFIG="sqlite:$DIR/theirs/locks.db" "$BIN" "$@"
    }
    for victim in command keeper; do
        : >"$DIR/err"
        chmod 666 "$DIR/err" "$DIR/up" "$DIR/go"
        setpriv --reuid 65534 --clear-groups env MORTISE_CONFIG="sqlite:$DIR/theirs/locks.db" \
            "$BIN" run --ttl 6s --grace 100ms "${N}d" -- "$other" --reuid 0 --clear-groups sh -c "trap '' TERM; $waits" \
            2>"$DIR/err" &
        wrapper=$!
        started
        if [ $victim = keeper ]; then
            kill -KILL "$(keeper_of $wrapper)"
        else
            as_other break "${N}d" --token "$(as_other status --json "${N}d" | sed -n 's/.*"token":"\{0,1\}\([0-9]*\).*/\1/p')" 2>/dev/null
        fi
        yes "$victim: it is named" until_true holds "$DIR/err" \
            "cannot kill sh \(pid $COMMAND, user root, state [A-Z]\)"
        begin=$(awk '{ print $14 + $15 }' "/proc/$wrapper/stat")
        kill -TERM $wrapper
        same_code "$victim: a signal ends the wrapper" 76 $wrapper
        yes "$victim: the command goes on" alive "$COMMAND"
        yes "$victim: the wrapper took little time for it ($begin ticks)" [ "$begin" -lt 100 ]
        go
        yes "$victim: it ends by itself" until_true gone "$COMMAND"
    done
else
    echo "not checked here: a command that cannot be killed (this takes root and set-uid files)"
fi

namespace='unshare -pf --mount-proc'
$namespace true 2>/dev/null || namespace='unshare -Urpf --mount-proc'
if $namespace true 2>/dev/null && command -v nsenter >/dev/null; then
    what "as PID 1 it reaps every orphan"
    $namespace "$BIN" run "${N}e" -- sh -c "$waits" 2>"$DIR/err" &
    unshared=$!
    started
    init=$(children_of $unshared | head -n 1)
    for round in 1 2 3; do
        nsenter -t "$init" -U -p --preserve-credentials sh -c '(sleep 0.05 &)' 2>/dev/null ||
            nsenter -t "$init" -p sh -c '(sleep 0.05 &)' || wrong "cannot enter it in round $round"
    done
    only_keeper() { [ "$(children_of "$init" | wc -l)" -eq 1 ]; }
    yes "none is left" until_true only_keeper
    go
    same_code "and it ends as ever" 0 $unshared
else
    echo "not checked here: a wrapper that is PID 1 (no namespaces here)"
fi

end
