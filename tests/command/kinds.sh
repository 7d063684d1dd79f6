#!/bin/sh
# Shared locks and permits on the command line: run --shared, run --permits, and what status, list, watch and break show.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

code() { # runs the command with these arguments; its code in GOT, stderr in $DIR/err
    "$BIN" "$@" >"$DIR/out" 2>"$DIR/err" </dev/null
    GOT=$?
}

what "usage"
for wrong in 0 -1 x '' 4294967296; do
    code run --permits "$wrong" "${N}a" -- touch "$DIR/ran"
    same "--permits \"$wrong\"" 64 $GOT
done
has_line "said" "$DIR/err" '^mortise: run: --permits "4294967296" is not a number from 1; see'
code run --permits
same "--permits without a number" 64 $GOT

what "check and require"
"$BIN" check >"$DIR/check"
has_line "check says which kinds there are" "$DIR/check" '^locks +ok +exclusive'
cat >"$DIR/sim.conf" <<EOF
[mortise]
driver = sim
require = shared, permits
EOF
code -C "$DIR/sim.conf" check
same "require = shared, permits: a driver that has both" 0 $GOT
has_line "said" "$DIR/out" '^locks +ok +exclusive, shared, permits$'
code -C "$DIR/sim.conf" drivers sim
has_line "drivers shows them" "$DIR/out" '^sim	driver	[^	]*	[^	]*	[a-z,]*shared,permits	'
same "run --permits" in "$("$BIN" -C "$DIR/sim.conf" run --permits 3 x -- echo in)"
same "run -s" in "$("$BIN" -C "$DIR/sim.conf" run -s x -- echo in)"
printf '[sim]\nwithout = permits\n' >>"$DIR/sim.conf"
code -C "$DIR/sim.conf" check
same "one that has only shared locks" 78 $GOT
has_line "said" "$DIR/out" '^config +wrong .*require: driver "sim" does not promise "permits"'
sed -i '/^require/d' "$DIR/sim.conf"
code -C "$DIR/sim.conf" check
has_line "check says what is missing" "$DIR/out" '^locks +ok +exclusive and shared; no permits$'
code -C "$DIR/sim.conf" run --permits 3 x -- touch "$DIR/ran"
same "run --permits" 69 $GOT
has_line "said" "$DIR/err" '^mortise: driver sim: no permits with these settings; use exclusive locks on 3 names'
sed -i 's/= permits/= shared/' "$DIR/sim.conf"
code -C "$DIR/sim.conf" check
has_line "without any" "$DIR/out" '^locks +ok +exclusive; no shared locks, no permits$'
code -C "$DIR/sim.conf" run --shared x -- touch "$DIR/ran"
same "run --shared" 69 $GOT
has_line "said" "$DIR/err" '^mortise: driver sim: no shared locks with these settings; an exclusive lock is safe'
no "the command never ran" [ -e "$DIR/ran" ]

if holds "$DIR/check" 'no shared locks'; then
    code run --shared "${N}a" -- true
    same "the driver of these tests has no shared locks: refused" 69 $GOT
    end
fi

what "an exclusive lock"
hold "${N}e"
"$BIN" status "${N}e" >"$DIR/out"
same "mode, holders, permits" "exclusive	1	-" "$(cut -f 10-12 "$DIR/out")"
same "--json" 'exclusive 1 null' "$(json "${N}e" mode) $(json "${N}e" holders) $(json "${N}e" permits)"
code run -n --shared "${N}e" -- touch "$DIR/ran"
same "keeps readers out" 75 $GOT
let_go "$HOLDER"

what "a shared lock"
hold "${N}s" --shared
first=$HOLDER first_command=$HOLDER_COMMAND
hold "${N}s" -s
second=$HOLDER second_command=$HOLDER_COMMAND
code run -n "${N}s" -- touch "$DIR/ran"
same "keeps a writer out" 75 $GOT
has_line "said" "$DIR/err" "^mortise: \"${N}s\" is held by .* \(pid $first\) and another for .*; not waited for\$"
"$BIN" status "${N}s" >"$DIR/out"
same "status: a line for each holder" "$first $second" "$(cut -f 4 "$DIR/out" | xargs)"
same "mode, holders, permits" "shared	2	-" "$(cut -f 10-12 "$DIR/out" | sort -u)"
same "list: a line for each lock" "$first shared 2" "$("$BIN" list "${N}s" | cut -f 4,10,11 | xargs)"
"$BIN" status --json "${N}s" >"$DIR/out"
has_line "--json" "$DIR/out" "\"pid\":$first,.*\"mode\":\"shared\",\"permits\":null,\"holders\":2,\"shared_by\":\[\{.*\"pid\":$first,.*\"pid\":$second,"
mapfile -t tokens < <("$BIN" status "${N}s" | cut -f 8)
yes "the later holder has the larger token" [ "${tokens[1]}" -gt "${tokens[0]}" ]

what "break one of the holders"
code break "${N}s" --token $((tokens[1] + 1))
same "a token that none has" 1 $GOT
has_line "said" "$DIR/err" "^mortise: \"${N}s\" is held by 2 shared leases, and none has token"
code break "${N}s" --token "${tokens[1]}"
same "the token of the second" 0 $GOT
has_line "said" "$DIR/err" "^mortise: broke \"${N}s\": the grant with token ${tokens[1]} was taken from .* \(pid $second\)"
same "the other still holds it" "$first" "$("$BIN" status "${N}s" | cut -f 4 | xargs)"
kill -STOP "$first" "$second"
kill -CONT "$first" "$second" # a run that is continued asks the backend whether it still holds the lock
until_true gone "$second_command" || wrong "the second holder goes on"
same_code "the second was told" 76 "$second"
yes "the first goes on" alive "$first_command"
let_go "$first"
yes "it is free" until_true is_free "${N}s"

what "a run inside of a run"
"$BIN" run --shared "${N}s" -- "$BIN" run --shared "${N}s" -- touch "$DIR/ran" 2>"$DIR/err"
same "with the same shared lock: refused, because a writer may wait between them" 75 $?
hold "${N}s" --shared
"$BIN" run --shared "${N}s" -- "$BIN" run "${N}s" -- touch "$DIR/ran" 2>"$DIR/err"
same "also if another is the oldest holder" 75 $?
has_line "said" "$DIR/err" "^mortise: \"${N}s\" is held by the mortise run that started this one"
let_go "$HOLDER"

if holds "$DIR/check" ' shared, permits$'; then
    what "permits"
    hold "${N}p" --permits 2
    first=$HOLDER
    hold "${N}p" --permits 2
    second=$HOLDER
    code run -n --permits 2 "${N}p" -- touch "$DIR/ran"
    same "the third is refused" 75 $GOT
    has_line "said" "$DIR/err" "^mortise: \"${N}p\" is held by .* \(pid $first\) and another for .*, 2 of 2 permits; not waited for\$"
    code run -w 100ms --permits 2 "${N}p" -- touch "$DIR/ran"
    same "nor at the end of a wait" 75 $GOT
    has_line "said" "$DIR/err" "^mortise: \"${N}p\" is held by .* \(pid $first\) and another for .*, 2 of 2 permits; gave up after 100 ms\$"
    code run -n --permits 3 "${N}p" -- touch "$DIR/ran"
    same "another number" 64 $GOT
    has_line "says which number is set, and by whom" "$DIR/err" "permits = 2.*"
    has_line "and by whom" "$DIR/err" "$first"
    code run -n --shared "${N}p" -- touch "$DIR/ran"
    same "none" 64 $GOT
    same "status: holders and permits" "shared	2	2" "$("$BIN" status "${N}p" | cut -f 10-12 | sort -u)"
    same "--json" 2 "$("$BIN" status --json "${N}p" | sed 's/.*"permits":\([0-9]*\).*/\1/')"
    "$BIN" run --permits 2 "${N}p" -- echo mine >"$DIR/waited" 2>&1 &
    waiter=$!
    until_true someone_waits "${N}p" || wrong "no waiter was seen"
    let_go "$second"
    same_code "a permit that comes back lets the next one in" 0 $waiter
    same "its command ran" mine "$(cat "$DIR/waited")"
    let_go "$first"
    same "five jobs, two at once" 5 "$(
        for i in 1 2 3 4 5; do
            "$BIN" run --permits 2 "${N}p" -- sh -c "mkdir $DIR/in.$i; ls -d $DIR/in.* 2>&1 | wc -l; rmdir $DIR/in.$i" &
        done >"$DIR/counts"
        wait
        grep -c '^[12]$' "$DIR/counts")"
else
    what "no permits"
    code run --permits 2 "${N}p" -- touch "$DIR/ran"
    same "the driver of these tests has none: refused" 69 $GOT
fi
no "no command ran that was refused" [ -e "$DIR/ran" ]

what "watch"
"$BIN" watch --interval 50ms "${N}w" >"$DIR/watch" 2>"$DIR/err" &
watcher=$!
hold "${N}w" --shared
first=$HOLDER
yes "held" until_true holds "$DIR/watch" "	held	${N}w	[^	]+	$first	[0-9]+	shared	1\$"
hold "${N}w" --shared
yes "joined" until_true holds "$DIR/watch" "	joined	${N}w	[^	]+	$first	[0-9]+	shared	2\$"
let_go "$first"
yes "left" until_true holds "$DIR/watch" "	left	${N}w	[^	]+	$HOLDER	[0-9]+	shared	1\$"
let_go "$HOLDER"
yes "released" until_true holds "$DIR/watch" "	released	${N}w	[^	]+	$HOLDER	[0-9]+	shared	1\$"

what "watch, which does not see the downgrade before a reader has joined"
mkfifo "$DIR/taker.in"
"$MORTISE_BUILD_DIR/tests/taker" "$MORTISE_CONFIG" <"$DIR/taker.in" >"$DIR/taker.out" &
taker=$!
exec {TAKER}>"$DIR/taker.in"
echo "acquire ${N}wd 0 60000" >&"$TAKER"
yes "held" until_true holds "$DIR/watch" "	held	${N}wd	[^	]+	$taker	[0-9]+	exclusive	1\$"
kill -STOP $watcher
yes "it is stopped" until_true stopped $watcher
echo downgrade >&"$TAKER"
yes "downgraded" until_true lines_in "$DIR/taker.out" 3
same "what the holder said" "ready OK OK" "$(sed 's/^OK .*/OK/' "$DIR/taker.out" | xargs)"
hold "${N}wd" --shared
kill -CONT $watcher
yes "joined" until_true holds "$DIR/watch" "	joined	${N}wd	[^	]+	$taker	[0-9]+	shared	2\$"
let_go "$HOLDER"
yes "left" until_true holds "$DIR/watch" "	left	${N}wd	[^	]+	$taker	[0-9]+	shared	1\$"
echo release >&"$TAKER"
yes "released" until_true holds "$DIR/watch" "	released	${N}wd	"
exec {TAKER}>&-
kill -TERM $watcher
same_code "TERM ends it" 143 $watcher

end
