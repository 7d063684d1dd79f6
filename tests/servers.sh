#!/bin/sh
# servers.sh VERB KIND FOLDER [KEY=VALUE …] - private, real servers for tests, in a directory of the test, on free ports of
# the loopback interface. Knows processes and ports; servers/KIND.sh has what is special for a kind of server.
#
# VERBs:
#   start    starts what does not run, waits until it answers, prints NAME=VALUE lines (HOST, PORT, …).
#            FOLDER keeps the KEYs: a later start needs none, and uses the same ports and the same data, so a
#            restart keeps what the server is configured to keep. Exits 77 if the program is not installed, or
#            cannot do here what the KEYs ask for.
#   values   prints the lines again
#   stop     ends it cleanly                    kill   ends it with SIGKILL
#   freeze   SIGSTOP                            thaw   SIGCONT
#   end      ends whatever runs, frozen or not; may be repeated, or called without a start
#   port     prints a port for another server, of whatever kind, another one each time: see reserve_port
#   ask      runs the server's own command-line client as a user with all rights, on the first server; the words
#            after FOLDER (and after only=N) are the client's. Takes at most two minutes
# stop, kill, freeze, thaw and end return when it has happened. All except end fail if a server is not running,
# and show the end of its log.
#
# KEYs of all kinds:
#   only=N         only the server with the name N (start, stop, kill, freeze, thaw); not kept in FOLDER
#   guard=PID      start: end the servers when that process ends, however it ends. A test script passes its own $$.
# The other KEYs belong to the kind: see the head of servers/KIND.sh.
#
# FOLDER belongs to the caller; it must exist. In it: settings, NAME.port, NAME.pid ("PID START-TIME"), NAME.log,
# and NAME/ for the data, where NAME is a member: "1" is the first or only server of the group.
#
# ---- What servers/KIND.sh defines ----------------------------------------------------------------------
#
#   kind_programs=…    the programs that it needs (words), searched in $PATH
#   kind_keys=…        the KEYs it knows (words)
#   kind_members       prints the names of the group's servers: 1 2 3 …
#   kind_prepare NAME  before each start: creates what the server needs in $FOLDER/NAME (exists), and writes its
#                      configuration again. Must keep existing data. server_port returns a port.
#   kind_run NAME      runs in a process of its own, with stdin /dev/null and the log as output: ends with
#                      `exec SERVER …`, in the foreground (no daemon), so that its pid is known.
#   kind_ready NAME PID   one real request; succeeds if the server answers AND has this pid or this data: another
#                      test's server may use the port, while ours is about to fail. Takes at most about a
#                      second, prints nothing. Repeated until $kind_patience_s.
#   kind_values        prints the NAME=VALUE lines; for further members PORT2, PORT3 … (member_suffix)
#   kind_ask NAME WORD…   for `ask`
# and, if the defaults do not suffice:
#   kind_may_be_ready NAME   fails while kind_ready would fail too, and costs far less than that: log_says helps. kind_ready is
#                      asked now and then nevertheless
#   kind_check         after the settings are read: prints why they are impossible here, and fails (exit 77)
#   kind_pids NAME PID     prints all processes of the server, PID first (default: PID): for freeze, thaw, kill
#   kind_in_turn       succeeds if each member is to be launched when the one before is ready; default: all at once
#   kind_stop_signal=TERM  kind_end_signal=KILL  kind_patience_s=60
#
# It may use: $FOLDER (absolute); faketime_library; setting KEY [DEFAULT]: the last value given; settings KEY: all of them, a
# line each; server_port NAME [WHAT]: a free port, the same one for ever; member_suffix NAME: nothing for 1;
# say TEXT: to stderr. A port turns out to be taken when the log says "Address already in use": then, as
# long as nothing of the group has been ready, all is ended and begun again on other ports.
# The caller's folder may be closed to other users: a server that does not run as root needs `chmod a+x` of it.
set -eu

kind_programs='' kind_keys=''
kind_stop_signal=TERM kind_end_signal=KILL kind_patience_s=60

kind_check() { :; }
kind_may_be_ready() { :; }
kind_in_turn() { false; }
kind_pids() { echo "$2"; }
kind_ask() { fail "$KIND cannot be asked"; }

say() {
    printf 'servers.sh: %s\n' "$*" >&2
}

fail() {
    say "$@"
    exit 1
}

# ---- settings --------------------------------------------------------------------------------------

# Tests start servers by the hundred, and a start asks for dozens of these and looks again and again whether a process runs.
# So what is below, and servers/KIND.sh, start no other program where the shell itself can do it: a start of the smallest one
# takes three milliseconds of a processor on a virtual machine, and such starts were a third of the time of all tests.

# count FROM TO [PREFIX]: seq, a number a line
count() {
    count_at=$1
    while [ "$count_at" -le "$2" ]; do
        echo "${3:-}$count_at"
        count_at=$((count_at + 1))
    done
}

# settings KEY: every value of it, a line each.
settings() {
    [ -f "$FOLDER/settings" ] || return 0
    while IFS= read -r settings_line; do
        case $settings_line in
        "$1="*) printf '%s\n' "${settings_line#*=}" ;;
        esac
    done <"$FOLDER/settings"
}

# setting KEY [DEFAULT]: the last one.
setting() {
    setting_value=${2:-}
    if [ -f "$FOLDER/settings" ]; then
        while IFS= read -r settings_line; do
            case $settings_line in
            "$1="*) setting_value=${settings_line#*=} ;;
            esac
        done <"$FOLDER/settings"
    fi
    printf '%s\n' "$setting_value"
}

newline='
'

remember_setting() {
    case " $kind_keys " in
    *" ${1%%=*} "*) ;;
    *) fail "$KIND does not know the key of \"$1\"; it knows: only guard $kind_keys" ;;
    esac
    case $1 in
    *"$newline"*) fail "a value may not have more than one line: $1" ;;
    esac
    (umask 077 && printf '%s\n' "$1" >>"$FOLDER/settings")
}

# ---- processes -------------------------------------------------------------------------------------

# start_time PID: sets `started`, of a process that runs; fails for one that is gone, or is a zombie nobody has reaped.
start_time() {
    started=''
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    # shellcheck disable=SC2086 # words: behind the name, which may have spaces
    set -- ${stat##*)}
    case ${1:-Z} in
    [ZXx]) return 1 ;;
    esac
    started=${20}
}

# runs_still FILE: sets `noted_pid`, the pid in it, if that process runs and is still the one that was meant.
runs_still() {
    [ -f "$1" ] || return 1
    read -r noted_pid noted_time <"$1" || return 1
    start_time "$noted_pid" && [ "$started" = "$noted_time" ]
}

# note_process FILE PID: fails if it has ended already.
note_process() {
    start_time "$2" || return 1
    echo "$2 $started" >"$1.new" && mv -- "$1.new" "$1"
}

member_runs() {
    runs_still "$FOLDER/$1.pid"
}

# log_says NAME TEXT: in its log since it was launched
log_says() {
    while IFS= read -r log_line; do
        case $log_line in
        *"$2"*) return 0 ;;
        esac
    done <"$FOLDER/$1.log"
    return 1
}

# member_died NAME DOING: says so, with the end of its log.
member_died() {
    say "$KIND $1 is not running ($2); the end of its log:"
    tail -n 15 "$FOLDER/$1.log" 2>/dev/null | sed 's/^/    /' >&2 || true
}

# now_s: sets `up_s`
now_s() {
    read -r up_s _ </proc/uptime
    up_s=${up_s%.*}
}

# faketime_library: the file to be loaded into a process whose clock is to be set; nothing: not installed
faketime_library() {
    for library in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1; do
        [ ! -f "$library" ] || echo "$library"
    done | head -n 1
}

# until_within SECONDS COMMAND…: again and again, until it succeeds; fails when the time is over.
until_within() {
    now_s
    give_up_s=$((up_s + $1)) times_tried=0
    shift
    until "$@"; do
        now_s
        [ "$up_s" -le "$give_up_s" ] || return 1
        times_tried=$((times_tried + 1))
        case $times_tried in # each look takes some milliseconds of a processor
        [1-5]) sleep 0.02 ;;
        [6-9]) sleep 0.05 ;;
        *) sleep 0.1 ;;
        esac
    done
}

member_gone() {
    ! member_runs "$1"
}

# signal_member NAME SIGNAL: to all of its processes.
signal_member() {
    member_runs "$1" || return 1
    for process in $(kind_pids "$1" "$noted_pid"); do
        kill "-$2" "$process" 2>/dev/null || true
    done
}

# Whether all of it is stopped (T), for freeze. A child that has ended stays a zombie (Z) for as long as its parent stands
# still.
member_frozen() {
    for process in $(kind_pids "$1" "$2"); do
        { read -r stat <"/proc/$process/stat"; } 2>/dev/null || continue
        case ${stat##*) } in
        [TtZX]*) ;;
        *) return 1 ;;
        esac
    done
}

member_suffix() {
    [ "$1" = 1 ] || echo "$1"
}

# ---- start -----------------------------------------------------------------------------------------

launch() {
    [ -d "$FOLDER/$1" ] || mkdir -p "$FOLDER/$1"
    kind_prepare "$1" || fail "$KIND $1 could not be prepared"
    [ ! -f "$FOLDER/$1.log" ] || mv -- "$FOLDER/$1.log" "$FOLDER/$1.log.before"
    (kind_run "$1") </dev/null >"$FOLDER/$1.log" 2>&1 &
    launched=$!
    note_process "$FOLDER/$1.pid" "$launched" || rm -f -- "$FOLDER/$1.pid"
}

# Ready, or dead: then `waiting` says so.
ready_or_dead() {
    waiting=dead
    member_runs "$1" || return 0
    waiting=$noted_pid
    kind_may_be_ready "$1" 2>/dev/null || [ $((times_tried % 20)) -eq 19 ] || return 1
    kind_ready "$1" "$waiting" >/dev/null 2>&1
}

# 0: it answers. 2: its port is taken. 1: neither, and it was told.
wait_ready() {
    if ! until_within "$kind_patience_s" ready_or_dead "$1"; then
        say "$KIND $1 does not answer after $kind_patience_s s; the end of its log:"
        tail -n 15 "$FOLDER/$1.log" | sed 's/^/    /' >&2
        return 1
    fi
    [ "$waiting" = dead ] || return 0
    if grep -qi 'address already in use' "$FOLDER/$1.log"; then
        return 2
    fi
    member_died "$1" 'just started'
    return 1
}

# start_members NAME…: launches what does not run. Exit code as of wait_ready.
start_members() {
    to_wait=''
    for member in "$@"; do
        if ! member_runs "$member"; then
            launch "$member"
            to_wait="$to_wait $member"
        fi
        if kind_in_turn; then
            wait_ready "$member" || return
        fi
    done
    for member in $to_wait; do
        wait_ready "$member" || return
    done
}

need_programs() {
    for program in $kind_programs; do
        command -v "$program" >/dev/null || skip "$program is not installed"
    done
}

start() {
    why=$(kind_check) || skip "${why:-not supported}"
    attempt=1
    start_guard # first: whoever needs them may end while they start
    trap : PIPE # nor does it end us before we have ended them, that nobody reads what we say
    while :; do
        code=0
        start_members "$@" || code=$?
        [ "$code" -eq 2 ] || break
        if [ -f "$FOLDER/ready" ]; then
            fail "the port of this $KIND was taken by another process while it was stopped"
        fi
        end_members
        [ "$attempt" -lt 20 ] || fail 'found no free ports in 20 attempts'
        attempt=$((attempt + 1))
        rm -f -- "$FOLDER"/*.port
    done
    if [ -n "$guard" ] && ! guard_is_needed; then # it has ended what it saw, and we went on
        end_members
        fail "guard=$guard: that process has ended"
    fi
    [ "$code" -eq 0 ] || return 1
    : >"$FOLDER/ready"
    kind_values
}

skip() {
    say "skipped: $KIND: $*"
    exit 77
}

# ---- the guard: a loop that outlives us, and ends the servers after the process that needs them, or after their folder ----

guard_is_needed() {
    start_time "$guard" && [ "$started" = "$guarded_time" ]
}

# keep_members: adds to `kept`, words "PID:START-TIME", what runs by the notes in the folder, and drops what has ended.
keep_members() {
    found=$kept kept=''
    for note in "$FOLDER"/*.pid; do
        [ "$note" = "$FOLDER/guard.pid" ] || ! runs_still "$note" || found="$found $noted_pid:$noted_time"
    done
    for one in $found; do
        case "$kept " in
        *" $one "*) continue ;;
        esac
        start_time "${one%:*}" || continue
        [ "$started" != "${one#*:}" ] || kept="$kept $one"
    done
}

# Somebody has deleted the folder, and not ended what runs there.
kill_kept() {
    for one in $kept; do
        kill -KILL "${one%:*}" 2>/dev/null || true
    done
    exit 0
}

start_guard() {
    [ -n "$guard" ] || return 0
    stop_guard
    start_time "$guard" || fail "guard=$guard: there is no such process"
    guarded_time=$started
    (
        trap '' HUP INT QUIT
        kept=''
        while guard_is_needed; do
            keep_members
            [ -d "$FOLDER" ] || kill_kept
            sleep 3 # a second would cost as much as many a server
        done
        [ -d "$FOLDER" ] || {
            keep_members # of those that it knows, what runs
            kill_kept
        }
        rm -f -- "$FOLDER/guard.pid" # it is us
        cd / && exec sh "$here/servers.sh" end "$KIND" "$FOLDER"
    ) </dev/null >/dev/null 2>&1 &
    note_process "$FOLDER/guard.pid" $! || fail 'the guard has ended'
}

stop_guard() {
    if runs_still "$FOLDER/guard.pid"; then
        kill "$noted_pid" 2>/dev/null || true
    fi
    [ ! -f "$FOLDER/guard.pid" ] || rm -f -- "$FOLDER/guard.pid"
}

# ---- the other verbs -------------------------------------------------------------------------------

# each VERB NAME…
each() {
    verb_of_each=$1
    shift
    for member in "$@"; do
        member_runs "$member" || {
            member_died "$member" "$verb_of_each"
            return 1
        }
        pid=$noted_pid
        "${verb_of_each}_member" "$member" "$pid" ||
            fail "$KIND $member (pid $pid): $verb_of_each has not happened in time"
    done
}

stop_member() {
    kill "-$kind_stop_signal" "$2"
    signal_member "$1" CONT || true
    until_within "$kind_patience_s" member_gone "$1"
}

# Stopped first: else a child that it makes at that moment would live on.
kill_member() {
    freeze_member "$1" "$2" || true
    signal_member "$1" KILL
    until_within "$kind_patience_s" member_gone "$1"
}

# Again and again, for it may just have made a child.
freeze_member() {
    until_within "$kind_patience_s" member_stops "$1" "$2"
}

member_stops() {
    signal_member "$1" STOP
    member_frozen "$1" "$2"
}

thaw_member() {
    signal_member "$1" CONT
}

# However: the kind's way first, for a server that has more to give back than its memory.
end_members() {
    for member in $(kind_members); do
        member_runs "$member" || continue
        pid=$noted_pid
        kill "-$kind_end_signal" "$pid" 2>/dev/null || true
        signal_member "$member" CONT || true
        until_within 10 member_gone "$member" || kill_member "$member" "$pid" ||
            fail "$KIND $member (pid $pid) cannot be ended"
    done
}

# ---- main ------------------------------------------------------------------------------------------

usage() {
    sed -n '2,27s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

[ $# -ge 3 ] || usage
VERB=$1 KIND=$2
case $0 in
*/*) here=${0%/*} ;;
*) here=. ;;
esac
here=$(CDPATH='' cd -- "$here" && pwd -P)
[ -f "$here/servers/$KIND.sh" ] || fail "there is no kind \"$KIND\""
FOLDER=$(CDPATH='' cd -- "$3" 2>/dev/null && pwd -P) || {
    [ "$VERB" != end ] || exit 0
    fail "there is no folder $3"
}
shift 3
# shellcheck source=servers/ports.sh
. "$here/servers/ports.sh"
# shellcheck source=/dev/null
. "$here/servers/$KIND.sh"

only='' guard=''
if [ "$VERB" = ask ]; then
    case ${1:-} in
    only=*)
        only=${1#only=}
        shift
        ;;
    esac
    kind_ask "${only:-1}" "$@"
    # shellcheck disable=SC2317 # the default is not the last word
    exit $?
fi
for argument in "$@"; do
    case $argument in
    only=*) only=${argument#only=} ;;
    guard=*) guard=${argument#guard=} ;;
    *=*) remember_setting "$argument" ;;
    *) usage ;;
    esac
done
[ "$VERB" != start ] || need_programs
members=${only:-$(kind_members)}

# shellcheck disable=SC2086 # members are words
case $VERB in
start) start $members ;;
values) kind_values ;;
port) another_port ;;
stop | kill | freeze | thaw) each "$VERB" $members ;;
end)
    end_members # if that fails, the guard stays
    stop_guard
    ;;
*) usage ;;
esac
