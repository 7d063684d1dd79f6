#!/bin/sh
# mortise migrate: what it reads, what it prints, each step in both directions, which clients it waits for, what stops it;
# and the config file, in which only the phase may change. Locks with the names of presences stand for clients.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

# shellcheck disable=SC2034 # for common
LIMIT=60
CONF=$DIR/fleet.conf
ID=0123456789abcdef0123456789abcde

# fleet PHASE: the config, anew
fleet() {
    printf '%s\n' '# a fleet' '[mortise]' 'driver = migrate' 'namespace = fleet:' '' \
        "[sqlite:a]" "path = $DIR/a.db" '[migrate]' 'from = sqlite:a' "  phase=$1 ; where it is" \
        'to: sqlite:b' 'presence = 2s' '[sqlite:b]' >"$CONF"
    printf 'path = %s\r' "$DIR/b.db" >>"$CONF"
}

migrate() {
    "$BIN" -C "$CONF" migrate "$@" >"$DIR/out" 2>"$DIR/err"
}

# migrates TEXT CODE ARGUMENTS…
migrates() {
    local text=$1 wanted=$2 got
    shift 2
    migrate "$@"
    got=$?
    if [ "$got" = "$wanted" ]; then
        ok "$text ($got)"
    else
        wrong "$text: wanted $wanted, got $got: $(cat "$DIR/out" "$DIR/err")"
    fi
}

phase() {
    sed -n 's/.*phase=\([a-z]*\) .*/\1/p' "$CONF"
}

# registers: "FROM TO" as status has them
registers() {
    "$BIN" -C "$CONF" migrate status | sed -n 's/^side	[a-z]*	[^	]*	\([^	]*\).*/\1/p' | paste -sd' '
}

# presence SIDE PHASE NUMBER: a client that exists until let_go "$HOLDER"
presence() {
    local file
    file=$(mktemp "$DIR/hold.XXXXXX")
    "$BIN" -C "$CONF#sqlite:$1" run --ttl 60s ".mortise-migrate/presence/$2/$ID$3" -- \
        sh -c "echo \$\$ >$file; exec sleep 1000" 2>>"$DIR/hold.err" &
    HOLDER=$!
    until_true filled "$file" || wrong "no presence: $(cat "$DIR/hold.err")"
}

what "a fleet that has not begun"
fleet old
cp "$CONF" "$DIR/before.conf"
migrates "status" 0 status
has_line "the file" "$DIR/out" 'phase = old; stage of the fleet: 1$'
has_line "from" "$DIR/out" '^side	from	sqlite:a	\{old, both\}	0	SQLite'
has_line "to" "$DIR/out" '^side	to	sqlite:b	\{both\}	0	SQLite'
migrates "nothing to go back to" 1 advance --back
migrates "plan" 0 plan
has_line "the line" "$DIR/out" '^ +phase = both$'
same "plan changes nothing" "" "$(diff "$CONF" "$DIR/before.conf")"
# what programs require of their own driver, a side alone need not have
sed -i 's/^driver = migrate$/&\nrequire = quorum/' "$CONF"
"$BIN" -C "$CONF" list >"$DIR/out" 2>"$DIR/err"
same "programs require more" 78 $?
migrates "the command does not" 0 status
MORTISE_CONFIG=$CONF "$BIN" migrate plan >"$DIR/out" 2>"$DIR/err"
same "nor by the environment" 0 $?
cp "$DIR/before.conf" "$CONF"

# attributes DO FILE: `set` gives the file an access list and an attribute; `show` prints what it has of both;
# `inherit` makes a folder give an access list to what is made in it. Exit code 3: this file system has none.
attributes() {
    python3 - "$@" <<'PYTHON'
import errno, os, struct, sys

def acl(mask):
    entries = ((1, 6, -1), (2, 4, 65534), (4, 4, -1), (16, mask, -1), (32, 0, -1))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)

do, path = sys.argv[1:]
try:
    if do == "set":
        os.setxattr(path, "system.posix_acl_access", acl(4))
        os.setxattr(path, "user.note", b"from the operators")
    elif do == "inherit":
        os.setxattr(path, "system.posix_acl_default", acl(4))
    for name in sorted(os.listxattr(path)):
        if name.startswith("user.") or "acl" in name:
            print(name, os.getxattr(path, name).hex())
except OSError as error:
    sys.exit(3 if error.errno == errno.ENOTSUP else "%s" % error)
PYTHON
}

what "only the phase of the file changes"
chmod 640 "$CONF"
kept=none
if command -v python3 >/dev/null; then
    attributes set "$CONF" >"$DIR/attributes"
    kept=$?
fi
if [ "$kept" = 0 ]; then
    has_line "the file has an access list" "$DIR/attributes" '^system.posix_acl_access '
    has_line "and an attribute" "$DIR/attributes" '^user.note '
elif [ "$kept" = none ] || [ "$kept" = 3 ]; then
    printf 'not checked here: access lists (no python3, or no file system that keeps them)\n'
else
    wrong "no access list could be set"
fi
mkdir "$DIR/links"
ln -s ../fleet.conf "$DIR/links/linked.conf"
"$BIN" -C "$DIR/links/linked.conf" migrate advance >"$DIR/out" 2>&1
same "by a link" 0 $?
yes "the link is one still" test -L "$DIR/links/linked.conf"
same "the rights" 640 "$(stat -c %a "$CONF")"
[ "$kept" != 0 ] || same "the access list and the attribute" "$(cat "$DIR/attributes")" "$(attributes show "$CONF")"
sed 's/phase=old/phase=both/' "$DIR/before.conf" | cmp - "$CONF"
same "the bytes" 0 $?
same "nothing is left beside it" "" "$(find "$DIR" -name 'fleet.conf.*')"
same "no register was written" "{old, both} {both}" "$(registers)"

what "a client in the way"
presence a old 1
"$BIN" -C "$CONF#sqlite:a" break ".mortise-migrate/presence/old/${ID}1" --token 1 2>"$DIR/err"
same "a presence is not broken" 1 $?
has_line "and why" "$DIR/err" 'is the presence of a client'
OLD=$HOLDER
"$BIN" -C "$CONF#sqlite:a" run job -- sh -c "echo >$DIR/job; exec sleep 1000" 2>/dev/null &
JOB=$!
yes "a lock is held" until_true filled "$DIR/job"
migrates "status" 0 status
has_line "the client" "$DIR/out" "^client	old	[^	]+	$OLD	sh	.* ago	from$"
has_line "the lock" "$DIR/out" "^lock	from	job	[^	]+ pid $JOB \(sh\)	"
no "presences are no locks" holds "$DIR/out" '^lock.*presence'
migrates "plan: not now" 75 plan
has_line "named" "$DIR/out" "^    .* pid $OLD \(sh\)$"
migrates "advance that does not wait" 75 advance -n
has_line "named" "$DIR/err" "1 client of phase old is still running: .* pid $OLD .*nothing was done"
same "nothing was written" "{old, both} {both}" "$(registers)"
migrates "advance that gives up" 75 advance -w 100ms
has_line "whom it waited for" "$DIR/err" "  .* pid $OLD \(sh\)$"
has_line "says how it goes on" "$DIR/err" 'gave up after 100 ms.*--back'
same "old is not admitted, new not yet" "{both} {both}" "$(registers)"
same "the file is as it was" both "$(phase)"
migrates "in the middle of a step" 0 status
has_line "told" "$DIR/out" 'stage of the fleet: between 1 and 2$'
"$BIN" -C "$CONF" migrate status --json >"$DIR/json"
has_line "--json: stage and client" "$DIR/json" '"stage":"between 1 and 2".*"phase":"old".*"pid":'"$OLD"
"$BIN" -C "$CONF" migrate plan --json >"$DIR/json"
same "plan --json" 75 $?
has_line "--json: not safe, and why" "$DIR/json" '"next_phase":"new".*"safe":false.*"pid":'"$OLD"

what "waiting, and another operator"
: >"$DIR/wait.err" # what an earlier one said is not read
"$BIN" -C "$CONF" migrate advance -w forever >"$DIR/wait.out" 2>"$DIR/wait.err" &
waiting=$!
yes "it waits" until_true holds "$DIR/wait.err" 'waiting for 1 client'
cp "$CONF" "$DIR/copy.conf"
"$BIN" -C "$DIR/copy.conf" migrate advance --back >"$DIR/out" 2>&1
same "somebody else goes back" 0 $?
let_go "$OLD"
same_code "the first one ends" 75 "$waiting"
has_line "and says why" "$DIR/wait.err" 'another operator wrote it'
same "the second one's step stands" "{old, both} {both}" "$(registers)"
presence a old 2
: >"$DIR/wait.err" # what an earlier one said is not read
"$BIN" -C "$CONF" migrate advance -w forever >"$DIR/wait.out" 2>"$DIR/wait.err" &
waiting=$!
yes "it waits again" until_true holds "$DIR/wait.err" 'waiting for 1 client'
kill -9 "$waiting"
wait "$waiting" 2>/dev/null
same "killed within" "{both} {both}" "$(registers)"
let_go "$HOLDER"

what "there"
presence a both 3
presence b both 3
# A folder that gives access lists to new files gives none to this one, which has none.
cp "$CONF" "$DIR/plain.conf" && mv "$DIR/plain.conf" "$CONF" && chmod 640 "$CONF"
[ "$kept" != 0 ] || attributes inherit "$DIR" >"$DIR/attributes" || wrong "the folder takes no access list"
migrates "both does not hold up new" 0 advance
same "1 -> 2" "{both} {both, new}" "$(registers)"
same "the file" new "$(phase)"
same "its rights" 640 "$(stat -c %a "$CONF")"
if [ "$kept" = 0 ]; then
    same "no access list of the folder's" "" "$(attributes show "$CONF")"
    python3 -c 'import os, sys; os.removexattr(sys.argv[1], "system.posix_acl_default")' "$DIR"
fi
floor=$("$BIN" -C "$CONF" migrate status | sed -n 's/^side	to	[^	]*	[^	]*	\([0-9]*\).*/\1/p')
job=$("$BIN" -C "$CONF#sqlite:a" status --json job | sed -n 's/.*"token":"\([0-9]*\)".*/\1/p')
yes "a floor above all tokens of the other side" test "$floor" -gt "${job:-$floor}"
sed 's/phase=new/phase=both/' "$CONF" >"$DIR/both.conf"
"$BIN" -C "$CONF" run newest -- sh -c "echo >$DIR/newest; exec sleep 1000" 2>/dev/null &
HOLDER=$!
yes "a client of phase new holds a lock" until_true filled "$DIR/newest"
"$BIN" -C "$DIR/both.conf" list >"$DIR/out"
same "phase both lists" 0 $?
has_line "the lock of phase new" "$DIR/out" "^newest	.*	$HOLDER	"
has_line "beside that of phase old" "$DIR/out" "^job	.*	$JOB	"
same "and no others" 2 "$(wc -l <"$DIR/out")"
let_go "$HOLDER"
migrates "a client on both sides is one" 0 status
same "one line" 1 "$(grep -c '^client' "$DIR/out")"
has_line "with both sides" "$DIR/out" '^client	both	.*	from, to$'
migrates "it holds up the last step" 75 advance -n
migrates "and within it" 75 advance -w 100ms
same "2 -> 3 has begun" "{both} {new}" "$(registers)"
# an operator who cannot read `from`, which that client needs
head -c 8192 /dev/urandom >"$DIR/noise.db"
sed "s,/a\.db$,/noise.db," "$CONF" >"$DIR/noise.conf"
without_from() {
    "$BIN" -C "$DIR/noise.conf" migrate "$@" >"$DIR/out" 2>"$DIR/err"
}
no "status without from" without_from status
has_line "the client" "$DIR/out" '^client	both	.*	to$'
has_line "the stage" "$DIR/out" 'stage of the fleet: unknown$'
same "from is not called needless" 0 "$(grep -c 'no client needs it' "$DIR/out")"
without_from status --json
has_line "as JSON" "$DIR/out" '"stage":null'
without_from plan
has_line "and in a plan" "$DIR/out" 'stage of the fleet: unknown$'
same "nor is it there" 0 "$(grep -c -e 'no client needs it' -e 'nothing is left' "$DIR/out")"
for pid in $(jobs -p); do
    [ "$pid" = "$JOB" ] || let_go "$pid"
done
let_go "$JOB"
migrates "to the end" 0 advance
same "2 -> 3" "{} {new}" "$(registers)"
same "the file stays" new "$(phase)"
migrates "nothing is left" 1 advance
migrates "nor planned" 1 plan
has_line "said" "$DIR/out" 'you can remove .from'
migrates "as JSON" 1 plan --json
has_line "there is no step that is safe" "$DIR/out" '"step":null,"last":true,"safe":false,"waits_for":\[\]'
mkdir "$DIR/aside"
mv "$DIR"/a.db* "$DIR/aside"
head -c 8192 /dev/urandom >"$DIR/a.db"
migrates "status when from has gone" 0 status
has_line "the stage" "$DIR/out" 'stage of the fleet: 3$'
has_line "says why" "$DIR/out" 'no client needs it'
migrates "as JSON" 0 status --json
rm -f "$DIR"/a.db*
mv "$DIR/aside"/* "$DIR"
fleet both
migrates "the file of a host that is behind" 0 advance
same "needs no step" "{} {new}, new" "$(registers), $(phase)"
fleet old
migrates "a file that is too far behind" 78 advance
has_line "says which" "$DIR/err" "the fleet is past phase old"
same "it stays" old "$(phase)"
migrates "plan says so too" 78 plan
has_line "says which" "$DIR/out" "^Not now: the fleet is past phase old"
migrates "as JSON" 78 plan --json
has_line "not the end, not safe" "$DIR/out" '"last":false,"safe":false,"problem":"the fleet is past'

what "and back"
fleet new
presence b new 4
migrates "in again" 0 advance --back
same "3 -> 2" "{both} {both, new}" "$(registers)"
same "the file" both "$(phase)"
migrates "waits for new" 75 advance --back -n
has_line "named" "$DIR/err" "1 client of phase new is still running: "
let_go "$HOLDER"
# `from`, which is opened, has given tokens a week ahead: its clock was
floor_lock() { # SQL
    python3 -c 'import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as base:
    print(*base.execute(sys.argv[2], (b"fleet:.mortise-migrate/floor",)).fetchone() or ())' "$DIR/a.db" \
        "$1 mortise_lock $2 WHERE name = ?"
}
ahead=
if command -v python3 >/dev/null; then
    floor_lock UPDATE "SET version = version + 604800000000"
    ahead=$(floor_lock "SELECT version FROM" "")
    yes "its clock was ahead" test "${ahead:-0}" -gt "$floor"
fi
migrates "out" 0 advance --back
same "2 -> 1" "{old, both} {both}" "$(registers)"
same "the file" old "$(phase)"
migrates "nothing is left" 1 advance --back
floor2=$("$BIN" -C "$CONF" migrate status | sed -n 's/^side	from	[^	]*	[^	]*	\([0-9]*\).*/\1/p')
yes "the floor is above that of the way there" test "$floor2" -gt "$floor"
yes "and above what the opened side gave" test "$floor2" -gt "${ahead:-0}"

what "files that cannot be used"
# bad PATTERN LINE…: those lines in the place of the section's own
bad() {
    local pattern=$1
    shift
    printf '%s\n' '[mortise]' 'driver = sqlite:a' '[sqlite:a]' "path = $DIR/a.db" "[sqlite:b]" \
        "path = $DIR/b.db" "$@" >"$CONF"
    cp "$CONF" "$DIR/before.conf"
    migrates "$2 …" 78 advance
    has_line "says why" "$DIR/err" "$pattern"
    same "it stays" "" "$(diff "$CONF" "$DIR/before.conf")"
}
bad 'no section \[migrate\] with a phase' '[migrate]' 'from = sqlite:a'
bad 'from is missing' '[migrate]' 'phase = old' 'to = sqlite:b'
bad 'to is missing' '[migrate]' 'phase = old' 'from = sqlite:a'
bad 'the phase is not old, both or new' '[migrate]' 'phase = odl' 'from = sqlite:a' 'to = sqlite:b'
bad 'from and to are the same' '[migrate]' 'phase = old' 'from = sqlite:a' 'to = sqlite:a'
# shellcheck disable=SC2016 # as it stands there
bad 'phase must be written in the file' '[migrate]' 'phase = ${PHASE}' 'from = sqlite:a' 'to = sqlite:b'
bad 'presence' '[migrate]' 'phase = old' 'from = sqlite:a' 'to = sqlite:b' 'presence = soon'
bad 'several sections' '[migrate:x]' 'phase = old' '[migrate:y]' 'phase = old'
bad 'no section \[sqlite:c\]' '[migrate]' 'phase = old' 'from = sqlite:a' 'to = sqlite:c'
printf '%s\n' '[mortise]' 'driver = sqlite:a' '[sqlite:a]' "path = $DIR/a.db" "[sqlite:b]" \
    "path = $DIR/b.db" '[migrate:x]' 'phase = new' '[migrate:y]' 'list = a,' '  phase=not this' \
    'from = sqlite:a' 'to = sqlite:b' ';phase=old' 'phase=old ;' >"$CONF"
migrates "a section that is named" 0 advance --section migrate:y
has_line "its phase" "$CONF" '^phase=both ;$'
has_line "not what looks like it" "$CONF" '^  phase=not this$'

what "of two migrations, the one that is named with the file"
printf '%s\n' '[mortise]' 'driver = migrate:x' '[sqlite:a]' "path = $DIR/a.db" "[sqlite:b]" "path = $DIR/b.db" \
    '[migrate:x]' 'phase = old' 'from = sqlite:a' 'to = sqlite:b' \
    '[migrate:y]' 'phase = both' 'from = sqlite:b' 'to = sqlite:a' >"$CONF"
cp "$CONF" "$DIR/before.conf"
migrates "the driver's" 0 status
has_line "its side" "$DIR/out" '^side	from	sqlite:a'
"$BIN" -C "$CONF#migrate:y" migrate status >"$DIR/out" 2>"$DIR/err"
same "by -C" 0 $?
has_line "its side" "$DIR/out" '^side	from	sqlite:b'
MORTISE_CONFIG=$CONF#migrate:y "$BIN" migrate status >"$DIR/out" 2>"$DIR/err"
same "by the environment" 0 $?
has_line "its side" "$DIR/out" '^side	from	sqlite:b'
MORTISE_CONFIG=$CONF#migrate:y "$BIN" migrate advance --section migrate:x >"$DIR/out" 2>"$DIR/err"
same "and another one by --section" 78 $?
has_line "says so" "$DIR/err" '--section is another'
MORTISE_CONFIG=$CONF#sqlite:a "$BIN" migrate status --section migrate:y >"$DIR/out" 2>"$DIR/err"
same "a section of another module says nothing" 0 $?
has_line "its side" "$DIR/out" '^side	from	sqlite:b'
same "the file stays" "" "$(diff "$CONF" "$DIR/before.conf")"

what "a side that is away"
if [ -e "${MORTISE_BUILD_DIR:-/none}/lib/mortise/redis.so" ]; then
    fleet old
    # nobody listens at port 1
    printf '\n[redis]\nservers = 127.0.0.1:1\n' >>"$CONF"
    sed -i 's/^from = .*/from = redis/' "$CONF"
    migrates "status" 69 status
    has_line "which" "$DIR/out" '^side	from	redis	unknown	-	.*127.0.0.1:1'
    has_line "the other one is told" "$DIR/out" '^side	to	sqlite:b	\{both\}'
    migrates "advance" 69 advance
    has_line "which" "$DIR/err" 'register of .from. \[redis\] cannot be read.*127.0.0.1:1'
    same "the file stays" old "$(phase)"
    sed -i 's/^from = .*/from = sqlite:a/; s/^to: .*/to: redis/; s/phase=old/phase=both/' "$CONF"
    "$BIN" -C "$CONF" list >"$DIR/out" 2>"$DIR/err"
    same "a list without the one of 'to'" 69 $?
    has_line "which" "$DIR/err" '.to. \[redis\].*127.0.0.1:1'
fi

# What a server forgets, or may have forgotten, while a step waits. restarted CODE PATTERN KEY…
servers() {
    sh "$MORTISE_SOURCE_DIR/tests/servers.sh" "$@"
}
restarted() {
    local wanted=$1 pattern=$2 server
    shift 2
    server=$(mktemp -d "$DIR/server.XXXXXX")
    rm -rf "$DIR/a.db"* "$DIR/b.db"*
    fleet both
    printf '\n[redis]\nservers = 127.0.0.1:%s\n' \
        "$(servers start redis "$server" "guard=$$" "$@" | sed -n 's/^PORT=//p')" >>"$CONF"
    sed -i 's/^to: .*/to: redis/; s/^presence = .*/presence = 1s/; s/phase=both/phase=new/' "$CONF"
    migrates "it begins at new" 0 advance
    same "1 -> 2" "{both} {both, new}" "$(registers)"
    "$BIN" -C "$CONF#redis" run ".mortise-migrate/presence/both/${ID}5" -- sleep 1000 2>>"$DIR/err" &
    HOLDER=$!
    yes "somebody is there" until_true client_listed
    : >"$DIR/wait.err" # what an earlier one said is not read
    "$BIN" -C "$CONF" migrate advance -w forever >"$DIR/wait.out" 2>"$DIR/wait.err" &
    waiting=$!
    yes "it waits" until_true holds "$DIR/wait.err" 'waiting for 1 client'
    servers kill redis "$server"
    servers start redis "$server" >/dev/null
    let_go "$HOLDER"
    same_code "after a restart ($*)" "$wanted" "$waiting"
    has_line "said" "$DIR/wait.err" "$pattern"
    servers end redis "$server"
}
client_listed() {
    "$BIN" -C "$CONF" migrate status | grep -q '^client	both'
}
if [ -e "${MORTISE_BUILD_DIR:-/none}/lib/mortise/redis.so" ] && command -v redis-server >/dev/null; then
    what "a server that is restarted, with its records"
    restarted 0 'may have lost its list of clients' aof=yes
    has_line "done" "$DIR/wait.out" '^done: 2 -> 3'
    what "and without them"
    restarted 75 'or the server lost it'
fi
end
