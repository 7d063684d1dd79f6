#!/bin/sh
# `mortise run` asks the backend after SIGCONT whether it still holds its locks. Signals do not wait for that answer. When a wait is
# over, it asks who holds the lock.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

for program in redis-server redis-cli; do
    command -v $program >/dev/null || skip "no $program"
done

servers() {
    sh "$MORTISE_SOURCE_DIR/tests/servers.sh" "$@"
}
mkdir "$DIR/server"
port=$(servers start redis "$DIR/server" "guard=$$" | sed -n 's/^PORT=//p')
# one question would take a minute
export MORTISE_CONFIG="redis://127.0.0.1:$port?unreachable_timeout=60s&close_timeout=60s"

round=0
start() { # COMMAND [SIGNAL [OPTION…]]: a run of three locks, stopped while the server does not answer
    round=$((round + 1)) # locks of its own: those of the round before may still be held
    rm -f "$DIR/ready"
    "$BIN" run --ttl 10m "${@:3}" "$N$round-a" "$N$round-b" "$N$round-c" -- bash -c "$1" 2>"$DIR/err" &
    WRAPPER=$!
    until_true filled "$DIR/ready" || wrong "the command did not start: $(cat "$DIR/err")"
    COMMAND=$(cat "$DIR/ready")
    kill -"${2:-STOP}" $WRAPPER
    until_true stopped $WRAPPER || wrong "it does not stop"
    servers freeze redis "$DIR/server"
}

send() { # SIGNAL…
    local signal
    begin=$(ms)
    for signal in "$@"; do
        kill -"$signal" $WRAPPER
    done
}

has_read_all() { grep -Eq '^ShdPnd:.0*$' "/proc/$WRAPPER/status"; } # no signal is pending

never() { # MS COMMAND…: it fails for so long
    local until=$(($(ms) + $1))
    shift
    while [ "$(ms)" -lt "$until" ]; do
        "$@" && return 1
        read -r -t 0.01 -u "$NOTHING"
    done
    return 0
}

pipes() { # how many ends of pipes the wrapper has
    find "/proc/$WRAPPER/fd" -lname 'pipe:*' 2>/dev/null | wc -l
}

ended() { # TEXT
    yes "$1: the command ends" until_true gone "$COMMAND"
    yes "$1: so does the wrapper" until_true gone $WRAPPER
    soon "$begin" 20000 "$1: soon"
    kill -KILL $WRAPPER "$COMMAND" 2>/dev/null
    same_code "$1: the code" 143 $WRAPPER
}

what "TERM and CONT, as systemctl stop sends them, and the server does not answer"
for signals in 'TERM CONT' 'CONT TERM'; do
    start "echo \$\$ >$DIR/ready; exec sleep 1000"
    # shellcheck disable=SC2086 # words
    send $signals
    ended "$signals"
    servers thaw redis "$DIR/server"
done

what "a TSTP that comes while the question is out is passed on after the CONT"
start "echo \$\$ >$DIR/ready; exec sleep 1000"
send CONT
until_true has_read_all || wrong "it does not read CONT"
send TSTP
until_true has_read_all || wrong "it does not read TSTP"
yes "not before" never 200 stopped "$COMMAND"
servers thaw redis "$DIR/server"
yes "the command stops" until_true stopped "$COMMAND"
yes "so does the wrapper" until_true stopped $WRAPPER
send CONT TERM
ended "continued by another CONT, it ends by TERM"

what "the same while the CONT waits for a renewal that is late"
patient=$MORTISE_CONFIG
export MORTISE_CONFIG="redis://127.0.0.1:$port?unreachable_timeout=1200ms"
start "echo \$\$ >$DIR/ready; exec sleep 1000" TSTP --ttl 12s --grace 4s
stopped_at=$(ms)
before=$(pipes)
late() { [ "$(ms)" -gt $((stopped_at + 6600)) ]; } # 5.6 s before the deadline, and a little
asks() { [ "$(pipes)" -gt "$before" ]; }
asks_no_more() { [ "$(pipes)" -le "$before" ]; }
until_true late
send CONT
until_true asks || wrong "it does not ask"
until_true asks_no_more || wrong "it asks for too long"
send TSTP
until_true has_read_all || wrong "it does not read TSTP"
servers thaw redis "$DIR/server"
yes "the wrapper stops, because the command has" until_true stopped $WRAPPER
yes "the command is stopped" stopped "$COMMAND"
no "the lock was not lost" filled "$DIR/err"
send CONT TERM
ended "continued by another CONT, it ends by TERM"
export MORTISE_CONFIG="$patient"

what "a wait that is over before the server has answered"
export MORTISE_CONFIG="redis://127.0.0.1:$port?unreachable_timeout=500ms&close_timeout=500ms"
servers freeze redis "$DIR/server"
begin=$(ms)
"$BIN" run -w 100ms -E 0 "${N}silent" -- touch "$DIR/ran" 2>"$DIR/err"
same "not the code of -E: nobody knows whether another has the lock" 69 $?
has_line "said" "$DIR/err" "^mortise: \"${N}silent\" was not acquired; gave up after 100 ms: ."
soon "$begin" 10000 "it asked once more, and not for long"
no "the command did not run" [ -e "$DIR/ran" ]
servers thaw redis "$DIR/server"

what "the server falls silent when the command has ended: several locks are released at the same time, and none was lost"
export MORTISE_CONFIG="redis://127.0.0.1:$port?unreachable_timeout=14s&close_timeout=500ms"
mkfifo "$DIR/go"
rm -f "$DIR/ready"
"$BIN" run --ttl 12s "${N}e" "${N}f" "${N}g" -- bash -c "echo >$DIR/ready; read -r _ <$DIR/go; exit 3" 2>"$DIR/err" &
WRAPPER=$!
until_true filled "$DIR/ready" || wrong "the command did not start: $(cat "$DIR/err")"
servers freeze redis "$DIR/server"
begin=$(ms)
echo >"$DIR/go" # long before SIGTERM is due
same_code "the command's code" 3 $WRAPPER
soon "$begin" 25000 "no name waits for another"
same "one line" 1 "$(wc -l <"$DIR/err")"
has_line "said" "$DIR/err" \
    "^mortise: \"${N}e\", \"${N}f\", \"${N}g\": it is unknown whether the lock was held to the end, and whether it is released; its ttl ends it at the latest: ."
servers thaw redis "$DIR/server"

# The first reply to a release of "taken" is lost, but not its second, nor the first one to that of "refused": the seed does that.
what "a release is refused, and then that of another name finds another holder after a lost reply: that is what is said"
printf '%s\n' '[mortise]' 'driver = chaos' '[chaos]' 'below = redis' 'only = release' 'seed = 22' 'lose_replies = 500' \
    '[redis]' "servers = 127.0.0.1:$port" >"$DIR/lossy.conf"
chmod 600 "$DIR/lossy.conf"
export MORTISE_CONFIG="redis://127.0.0.1:$port"
rm -f "$DIR/ready"
"$BIN" -C "$DIR/lossy.conf" run --ttl 10m refused taken -- bash -c "echo >$DIR/ready; read -r _ <$DIR/go; exit 3" 2>"$DIR/err" &
WRAPPER=$!
until_true filled "$DIR/ready" || wrong "the command did not start: $(cat "$DIR/err")"
redis-cli -p "$port" del mortise:refused >/dev/null
same "the one is no lock any more" 1 "$(redis-cli -p "$port" hset mortise:refused foreign 1)"
same "the other one is lost" 1 "$(redis-cli -p "$port" del mortise:taken)"
hold taken
echo >"$DIR/go"
same_code "the command's code" 3 $WRAPPER
same "one line" 1 "$(wc -l <"$DIR/err")"
has_line "said" "$DIR/err" \
    '^mortise: "refused", "taken": it is unknown whether the lock was held to the end, .*: release "taken": a reply was lost, and '
let_go "$HOLDER"

# What the run asks for first is granted at once, and the answer comes a minute late; its releases are lost. Its second request, the
# try after the wait, is nine seconds late. The seed does that for this name only (docs/plugins.md).
printf '%s\n' '[mortise]' 'driver = chaos:lost' 'unreachable_timeout = 20s' 'close_timeout = 300ms' \
    '[chaos:lost]' 'below = chaos:late' 'only = release' 'lose_requests = 1000' 'tell = yes' \
    '[chaos:late]' 'below = redis' 'only = acquire' 'seed = 29777' 'delay = 10s' 'reply_delay = 60s' \
    '[redis]' "servers = 127.0.0.1:$port" >"$DIR/late.conf"
chmod 600 "$DIR/late.conf"
export MORTISE_CONFIG="redis://127.0.0.1:$port"
leave_behind() { # WAIT: a run whose own request holds the lock, which it does not know; WRAPPER is its pid
    "$BIN" -C "$DIR/late.conf" run -w "$1" -E 3 --ttl 5m left -- touch "$DIR/ran" 2>"$DIR/err" &
    WRAPPER=$!
    until_true is_held left || wrong "nothing is left behind: $(cat "$DIR/err")"
    same "its own request holds the lock" $WRAPPER "$(json left pid)"
}
what "at the end of the wait a request of the run itself holds the lock: nobody else runs the command"
leave_behind 5s
same_code "not the code of -E" 69 $WRAPPER
grep -v '^mortise: .* is held by ' "$DIR/err" >"$DIR/filtered"
has_line "said, and not filtered with the lines of other holders" "$DIR/filtered" \
    '^mortise: "left" was not acquired; gave up after 5 s: a request of this run that got no answer may have acquired it$'
"$BIN" break left --token "$(json left token)" 2>/dev/null

what "the same, and the next in the queue has it before the run tries once more"
leave_behind 10s
"$BIN" run left -- sh -c "echo >$DIR/next; read -r _ <$DIR/go" 2>"$DIR/next.err" &
next=$!
until_true someone_waits left || wrong "no waiter is seen: $(cat "$DIR/next.err")"
until_true holds "$DIR/err" 'release .*the request was lost' || wrong "the wait does not end: $(cat "$DIR/err")"
"$BIN" break left --token "$(json left token)" 2>/dev/null
until_true filled "$DIR/next" || wrong "the next one does not get the lock: $(cat "$DIR/next.err")"
same_code "the code of -E" 3 $WRAPPER
has_line "who has it" "$DIR/err" "^mortise: \"left\" is held by .* \(pid $next\) for .*; gave up after 10 s\$"
echo >"$DIR/go"
same_code "the next one ends" 0 $next

# The same with another seed: the try is nine seconds late, too, and its answer six. What the run's own request wrote has another name
# meanwhile, as a transaction hides what it writes.
what "its own request is hidden until the try, which finds it, and gone when the run asks who has the lock"
sed 's/^seed = .*/seed = 152630/' "$DIR/late.conf" >"$DIR/hidden.conf"
chmod 600 "$DIR/hidden.conf"
redis-cli -p "$port" monitor >"$DIR/monitor" 2>/dev/null &
monitor=$!
until_true filled "$DIR/monitor" || wrong "no monitor"
asked() { [ "$(grep -Ec '"EVAL(SHA)?" .*"mortise:hidden"' "$DIR/monitor")" -ge "$1" ]; }
"$BIN" -C "$DIR/hidden.conf" run -w 3s -E 3 --ttl 5m hidden -- touch "$DIR/ran" 2>"$DIR/err" &
WRAPPER=$!
until_true asked 1 || wrong "it does not ask: $(cat "$DIR/err")"
until_true is_held hidden || wrong "nothing is left behind: $(cat "$DIR/err")"
token=$(json hidden token)
same "hidden" OK "$(redis-cli -p "$port" rename mortise:hidden uncommitted)"
until_true holds "$DIR/err" 'release .*the request was lost' || wrong "the wait does not end: $(cat "$DIR/err")"
no "the try was not before" asked 2
same "it appears" OK "$(redis-cli -p "$port" rename uncommitted mortise:hidden)"
until_true asked 2 || wrong "it does not try: $(cat "$DIR/err")"
yes "it is gone" "$BIN" break hidden --token "$token"
same_code "not the code of -E: nobody else had the lock" 69 $WRAPPER
has_line "said" "$DIR/err" \
    '^mortise: "hidden" was not acquired; gave up after 3 s: a request of this run that got no answer may have acquired it$'
kill $monitor

namespace='unshare -pf --mount-proc'
$namespace true 2>/dev/null || namespace='unshare -Urpf --mount-proc'
if $namespace true 2>/dev/null; then
    what "two containers with one host name: in each of them the run is process 1, and the other one gets the lock during the wait"
    waiters() { [ "$(json "${N}c" waiters)" = "$1" ]; }
    hold "${N}c"
    $namespace "$BIN" run "${N}c" -- sh -c "echo >$DIR/first; read -r _ <$DIR/go" 2>"$DIR/first.err" &
    first=$!
    until_true waiters 1 || wrong "it does not wait: $(cat "$DIR/first.err")"
    $namespace "$BIN" run -w 10s -E 3 "${N}c" -- touch "$DIR/ran" 2>"$DIR/err" &
    second=$!
    until_true waiters 2 || wrong "it does not wait: $(cat "$DIR/err")"
    let_go "$HOLDER"
    until_true filled "$DIR/first" || wrong "it does not get the lock: $(cat "$DIR/first.err")"
    same_code "the code of -E" 3 $second
    has_line "said" "$DIR/err" "^mortise: \"${N}c\" is held by .* \(pid 1\) for .*; gave up after 10 s\$"
    echo >"$DIR/go"
    same_code "the other one ends" 0 $first
else
    echo "not checked here: two containers with one host name (no namespaces here)"
fi
no "no command ran without the lock" [ -e "$DIR/ran" ]

servers end redis "$DIR/server"
end
