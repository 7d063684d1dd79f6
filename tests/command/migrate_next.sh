#!/bin/sh
# mortise migrate, where the `to` of one migration is the `from` of the next: clients of the first one that somebody forgot, what
# its operators can still do, and floors. SQLite files: from a to b, then from b to c; and so on.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

# shellcheck disable=SC2034 # for common
LIMIT=60
[ -e "${MORTISE_BUILD_DIR:-/none}/lib/mortise/migrate.so" ] || skip "the plugin migrate is not built"
ID=0123456789abcdef0123456789abcdef

# conf FILE FROM TO PHASE
conf() {
    printf '%s\n' '[mortise]' 'driver = migrate' "[sqlite:$2]" "path = $DIR/$2.db" "[sqlite:$3]" "path = $DIR/$3.db" \
        '[migrate]' "from = sqlite:$2" "to = sqlite:$3" "phase = $4" 'presence = 10s' >"$DIR/$1.conf"
}

# migrates TEXT CODE CONF ARGUMENTS…
migrates() {
    local text=$1 wanted=$2 conf=$3 got
    shift 3
    "$BIN" -C "$DIR/$conf.conf" migrate "$@" >"$DIR/out" 2>"$DIR/err"
    got=$?
    if [ "$got" = "$wanted" ]; then
        ok "$text ($got)"
    else
        wrong "$text: wanted $wanted, got $got: $(cat "$DIR/out" "$DIR/err")"
    fi
}

# enters TEXT CODE CONF NAME: tries once
enters() {
    "$BIN" -C "$DIR/$3.conf" run -w 0 "$4" -- true >"$DIR/out" 2>"$DIR/err"
    same "$1" "$2" $?
}

# registers CONF; floor CONF SIDE
registers() {
    "$BIN" -C "$DIR/$1.conf" migrate status | sed -n 's/^side	[a-z]*	[^	]*	\([^	]*\).*/\1/p' | paste -sd' '
}
floor() {
    "$BIN" -C "$DIR/$1.conf" migrate status | sed -n "s/^side	$2	[^	]*	[^	]*	\([0-9]*\).*/\1/p"
}

what "a migration that has not come to its end"
conf ab a b both
migrates "from a to b" 0 ab advance
same "1 -> 2" "{both} {both, new}" "$(registers ab)"
conf bc b c both
migrates "from b to c: no step yet" 75 bc advance
has_line "why" "$DIR/err" '.from. \[sqlite:b\] is also the .to. of another migration, .*\{both, new\}.*stage 3'
migrates "plan says so" 75 bc plan
same "nothing was written" "{old, both} {both}" "$(registers bc)"
migrates "the first one ends" 0 ab advance
same "2 -> 3" "{} {new}" "$(registers ab)"

what "a client of it that was forgotten"
MORTISE_CONFIG=$DIR/ab.conf hold n
old=$HOLDER
migrates "plan: not now" 75 bc plan
has_line "how many" "$DIR/out" 'it waits for 1 client of another migration:$'
has_line "whom" "$DIR/out" " pid $old .*, of another migration\$"
migrates "as JSON" 75 bc plan --json
has_line "told" "$DIR/out" "\"safe\":false.*\"pid\":$old,.*\"other_migration\":true"
migrates "no step while it is there" 75 bc advance -n
has_line "why" "$DIR/err" "1 client of another migration is still running: .* pid $old .*nothing was done"
same "nothing was written" "{old, both} {both}, {} {new}" "$(registers bc), $(registers ab)"
migrates "nor by waiting" 75 bc advance -w 100ms
has_line "for whom" "$DIR/err" 'waiting for 1 client of another migration on .from. \[sqlite:b\]:'
has_line "and that it gave up" "$DIR/err" 'clients of phase old, or of another migration, may still be on'
same "its register is closed, c not open yet" "{both} {both}, {} {}" "$(registers bc), $(registers ab)"
conf cc b c new
enters "nobody is on c beside it" 78 cc n
enters "it gets no second client" 78 ab other
migrates "the step again" 75 bc advance -w 100ms
same "its register is closed still" "{} {}" "$(registers ab)"
migrates "an operator of the first migration cannot open it" 75 ab advance
has_line "why" "$DIR/err" '.to. \[sqlite:b\] is also the .from. of another migration, .*\{both\}.*take that one back'
migrates "nor go back" 75 ab advance --back
let_go "$old"
migrates "when it is gone, the step is taken" 0 bc advance
same "1 -> 2" "{both} {both, new}" "$(registers bc)"
enters "c is free" 0 cc n
enters "and b is closed" 78 ab n
yes "a floor above that of the first migration" test "$(floor bc to)" -ge "$(($(floor ab to) + 86400000000))"

what "back, beside a client of a third migration"
migrates "the file" 0 bc advance --back
"$BIN" -C "$DIR/bc.conf#sqlite:c" run ".mortise-migrate/presence/old/$ID" -- sh -c "echo >$DIR/third; exec sleep 1000" 2>/dev/null &
HOLDER=$!
yes "it is there" until_true filled "$DIR/third"
migrates "no step" 75 bc advance --back -n
has_line "why" "$DIR/err" "1 client of another migration is still running: .* pid $HOLDER "
migrates "nor by waiting" 75 bc advance --back -w 100ms
conf ca c a old
same "it is not admitted again" "{} {both}" "$(registers ca)"
let_go "$HOLDER"
migrates "when it is gone, the step is taken" 0 bc advance --back
same "2 -> 1" "{old, both} {both}" "$(registers bc)"
migrates "then the first migration can go back too" 0 ab advance --back

what "a client of phase both, when the first migration's last step has given up"
conf de d e both
migrates "from d to e" 0 de advance
conf de d e both
MORTISE_CONFIG=$DIR/de.conf hold n
old=$HOLDER
conf de d e new
migrates "the last step gives up" 75 de advance -w 100ms
same "between 2 and 3" "{both} {new}" "$(registers de)"
conf ef e f both
migrates "from e to f: not now" 75 ef plan
has_line "whom" "$DIR/out" " pid $old .*, of another migration\$"
migrates "no step while it is there" 75 ef advance -n
migrates "nor by waiting" 75 ef advance -w 100ms
has_line "for whom" "$DIR/err" 'waiting for 1 client of another migration on .from. \[sqlite:e\]:'
same "its register is closed, f not open yet" "{both} {both}, {both} {}" "$(registers ef), $(registers de)"
conf ef2 e f both
MORTISE_CONFIG=$DIR/ef2.conf hold other
own=$HOLDER
migrates "one of its own, too" 75 ef plan
has_line "only the foreign one is in the way" "$DIR/out" 'it waits for 1 client of another migration:$'
let_go "$old"
migrates "when it is gone, the step is taken beside its own" 0 ef advance -n
same "1 -> 2" "{both} {both, new}" "$(registers ef)"
let_go "$own"

what "a first migration that never took a step"
conf gh g h both
MORTISE_CONFIG=$DIR/gh.conf hold n
old=$HOLDER
conf hi h i both
migrates "from h to i: no step while a client of phase both is there" 75 hi advance -n
same "nothing was written" "{old, both} {both}, {old, both} {both}" "$(registers hi), $(registers gh)"
migrates "nor by waiting" 75 hi advance -w 100ms
has_line "it is shut out" "$DIR/err" '.from. \[sqlite:h\] no longer admits clients of another migration'
same "its register is closed, i not open yet" "{both} {both}, {old, both} {}" "$(registers hi), $(registers gh)"
enters "it gets no second client" 78 gh other
let_go "$old"
migrates "when it is gone, the step is taken" 0 hi advance
same "1 -> 2" "{both} {both, new}" "$(registers hi)"

what "its operator waits, and the next migration goes on"
conf jk j k old
MORTISE_CONFIG=$DIR/jk.conf hold n
old=$HOLDER
conf jk2 j k both
"$BIN" -C "$DIR/jk2.conf" migrate advance >"$DIR/waits" 2>&1 &
operator=$!
yes "it waits for a client of phase old" until_true grep -q 'waiting for 1 client of phase old' "$DIR/waits"
conf kl k l both
migrates "from k to l" 0 kl advance
same "1 -> 2" "{both} {both, new}" "$(registers kl)"
let_go "$old"
wait "$operator"
same "then it does not open k" 75 $?
has_line "why" "$DIR/waits" 'register of .to. \[sqlite:k\] has changed'
same "k is closed to its phase new" "{both} {both}" "$(registers jk2)"
end
