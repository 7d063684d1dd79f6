#!/bin/sh
# Which clients are not admitted while a fleet moves, and which delay a step: clients of the plugin, in processes that are
# stopped, killed and continued. From one SQLite file to another, or from Redis if it is installed.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

# shellcheck disable=SC2034 # for common
LIMIT=60
[ -e "${MORTISE_BUILD_DIR:-/none}/lib/mortise/migrate.so" ] || skip "the plugin migrate is not built"
TAKER=$MORTISE_BUILD_DIR/tests/taker
FROM=sqlite:a
FROM_LINES="path = $DIR/a.db"

# conf PHASE: the file $DIR/PHASE.conf. Only who is to vanish (old) has a short presence: the others may stand still.
conf() {
    local presence=10s
    [ "$1" != old ] || presence=${PRESENCE:-10s}
    printf '%s\n' '[mortise]' 'driver = migrate' 'namespace = fleet:' '[migrate]' "from = $FROM" \
        'to = sqlite:b' "phase = $1" "presence = $presence" "[$FROM]" "$FROM_LINES" '[sqlite:b]' \
        "path = $DIR/b.db" >"$DIR/$1.conf"
}

# fleet: all three, and what the operator has
fleet() {
    local phase
    rm -rf "$DIR/a.db"* "$DIR/b.db"*
    for phase in old both new; do
        conf $phase
    done
    cp "$DIR/both.conf" "$DIR/operator.conf"
}

# enters PHASE: tries to take a lock
enters() {
    "$BIN" -C "$DIR/$1.conf" run -w 60s "lock-$1" -- true 2>"$DIR/err"
}

# entered TEXT CODE PHASE
entered() {
    local got
    enters "$3"
    got=$?
    if [ $got -eq "$2" ]; then
        ok "$1 ($got)"
    else
        wrong "$1: wanted $2, got $got: $(cat "$DIR/err")"
    fi
}

advance() {
    "$BIN" -C "$DIR/operator.conf" migrate advance "$@" >"$DIR/out" 2>"$DIR/advance.err"
}

# stays PHASE: a client that holds a lock, until let_go "$HOLDER"
stays() {
    MORTISE_CONFIG=$DIR/$1.conf hold "stays-$1" --ttl 60s
}

# taker PHASE: a client that does as it is told by `tell`; $TAKEN is what it says, $TOLD its pid
taker() {
    rm -f "$DIR/taker.in"
    mkfifo "$DIR/taker.in"
    : >"$DIR/taker.out"
    "$TAKER" "$DIR/$1.conf" <"$DIR/taker.in" >>"$DIR/taker.out" 2>>"$DIR/taker.err" &
    TOLD=$!
    exec {TAKER_FD}>"$DIR/taker.in"
    ANSWERS=0
    answered
}
answered() {
    ANSWERS=$((ANSWERS + 1))
    until_true lines_in "$DIR/taker.out" $ANSWERS || wrong "the taker does not answer"
    TAKEN=$(tail -n 1 "$DIR/taker.out")
}
tell() {
    echo "$*" >&"$TAKER_FD"
}
told_off() { # TEXT PATTERN
    if [[ $TAKEN =~ $2 ]]; then ok "$1: $TAKEN"; else wrong "$1: $TAKEN"; fi
}
dismiss() {
    tell quit
    exec {TAKER_FD}>&-
    wait "$TOLD" 2>/dev/null
}
nobody_of() { # PHASE
    ! "$BIN" -C "$DIR/operator.conf" migrate status | grep -q "^client	$1	"
}

what "a phase is not skipped"
fleet
entered "new, where nobody has taken a step" 78 new
has_line "which side, and what it admits" "$DIR/err" '.to. \[sqlite:b\].*\{both\}'
entered "old is admitted" 0 old
entered "both is admitted" 0 both

what "from is to"
sed 's/^to = .*/to = sqlite:a/' "$DIR/old.conf" >"$DIR/same.conf"
entered "refused" 78 same
has_line "said" "$DIR/err" 'the same section'

what "new while old lives"
stays old
old=$HOLDER
entered "refused" 78 new
has_line "it names the other's pid" "$DIR/err" "$old"
has_line "and its host" "$DIR/err" "$(cat /proc/sys/kernel/hostname)"
advance -n
same "no step while it is there" 75 $?
advance -w 100ms
same "nor by waiting" 75 $?
entered "old is shut out, though that one lives" 78 old
has_line "which side" "$DIR/err" '.from. \[sqlite:a\].*\{both\}'
entered "new is not admitted yet" 78 new
"$BIN" -C "$DIR/both.conf#sqlite:a" status --json stays-old >"$DIR/json"
has_line "who was there goes on holding" "$DIR/json" '"held":true'
let_go "$old"
advance
same "when it is gone, the step is taken" 0 $?
entered "new is admitted" 0 new
entered "both too" 0 both
entered "old is not" 78 old

what "the other way"
stays new
new=$HOLDER
cp "$DIR/both.conf" "$DIR/operator.conf"
advance --back -w 100ms
same "back, while new lives" 75 $?
has_line "named" "$DIR/advance.err" "pid $new "
entered "new is shut out" 78 new
entered "old is not admitted" 78 old
let_go "$new"
advance --back
same "when it is gone" 0 $?
entered "old is admitted" 0 old

what "one that is killed"
PRESENCE=3s
fleet
taker old
tell "acquire killed -1 2000"
answered
told_off "it holds" '^OK'
kill -9 "$TOLD"
wait "$TOLD" 2>/dev/null
exec {TAKER_FD}>&-
advance -w forever
same "its presence ends by itself, with its lease" 0 $?
entered "new is admitted" 0 new

what "one that is stopped, and goes on after the step"
fleet
taker old
tell "acquire stopped -1 2000"
answered
told_off "it holds" '^OK'
kill -STOP "$TOLD"
yes "it stands" until_true stopped "$TOLD"
yes "its presence ends" until_true nobody_of old
advance -w forever
same "the step" 0 $?
entered "new is admitted" 0 new
kill -CONT "$TOLD"
tell state
answered
told_off "what it held is lost" '^(2|LOST)'
tell "acquire stopped 0 2000"
answered
told_off "it gets nothing more" '^CONFIG .*\{both\}'
dismiss

if [ -e "$MORTISE_BUILD_DIR/lib/mortise/redis.so" ] && command -v redis-server >/dev/null; then
    what "a side that is away"
    mkdir "$DIR/server"
    port=$(sh "$MORTISE_SOURCE_DIR/tests/servers.sh" start redis "$DIR/server" "guard=$$" aof=yes |
        sed -n 's/^PORT=//p')
    PRESENCE=''
    FROM=redis FROM_LINES="servers = 127.0.0.1:$port"
    fleet
    sed -e 's/^from = .*/from = sqlite:b/' -e 's/^to = .*/to = redis/' -e 's/:1$/:2/' \
        "$DIR/both.conf" >"$DIR/turned.conf"
    sed -i "s/127.0.0.1:$port/127.0.0.1:1/" "$DIR/turned.conf"
    entered "both, while to is away" 69 turned
    has_line "which side" "$DIR/err" '.to. \[redis\]'
    advance
    same "1 -> 2" 0 $?
    advance
    same "2 -> 3" 0 $?
    sh "$MORTISE_SOURCE_DIR/tests/servers.sh" end redis "$DIR/server"
    what "from is gone for good"
    entered "new is admitted" 0 new
    entered "both is not" 69 both
    has_line "which side" "$DIR/err" '.from. \[redis\]'
fi
end
