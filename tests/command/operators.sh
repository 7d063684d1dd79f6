#!/bin/sh
# The commands for operators: status, list, break, watch (piped), check, drivers, schema.
# shellcheck disable=SC2034 # LIMIT is for common
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

command -v python3 >/dev/null && HAVE_PYTHON=yes || HAVE_PYTHON=

# Checks with a JSON reader that is not ours, where there is one. EXPRESSION sees it as `d`.
json_says() { # TEXT FILE EXPRESSION
    if [ -z "$HAVE_PYTHON" ]; then
        printf 'not checked (no python3): %s\n' "$1"
    else
        yes "$1" python3 -c 'import json,sys
d=[json.loads(l) for l in open(sys.argv[1], encoding="utf-8")]
d=d[0] if len(d)==1 else d
sys.exit(0 if eval(sys.argv[2]) else 1)' "$2" "$3"
    fi
}

what "status"
"$BIN" status "${N}a" >"$DIR/out"
same "a free lock: the code" 0 $?
same "a line" "${N}a	free	-	-	-	-	-	-" "$(cut -f 1-8 "$DIR/out")"
hold "${N}a" --ttl 40s
"$BIN" status "${N}a" "${N}b" >"$DIR/out"
same "two names, two lines" 2 "$(wc -l <"$DIR/out")"
has_line "the holder" "$DIR/out" "^${N}a	held	[^	]+	$HOLDER	[^	]+	[^	]+ ago	in [^	]+	[0-9]+	"
"$BIN" status --json "${N}a" "${N}b" >"$DIR/out"
json_says "--json: an array" "$DIR/out" 'len(d)==2 and d[0]["held"] and not d[1]["held"]'
json_says "host and pid" "$DIR/out" "d[0]['pid']==$HOLDER and d[0]['host']==open('/proc/sys/kernel/hostname').read().strip()"
json_says "since and until" "$DIR/out" '0<=d[0]["held_ms"]<20000 and 20000<d[0]["remaining_ms"]<=40000'
json_says "the token is a text of digits" "$DIR/out" 'd[0]["token"].isdigit()'
"$BIN" run "${N}a" -- true 2>/dev/null &
waiter=$!
yes "a waiter is counted, where the backend counts" until_true someone_waits "${N}a"
kill -INT $waiter
wait $waiter 2>/dev/null
let_go "$HOLDER"

what "a backend that does not answer"
printf '%s\n' '[mortise]' 'driver = redis' 'unreachable_timeout = 200ms' '[redis]' 'servers = 127.0.0.1:1' >"$DIR/away.conf"
if "$BIN" drivers redis >/dev/null 2>&1; then
    "$BIN" -C "$DIR/away.conf" list --json >"$DIR/out" 2>"$DIR/err"
    same "list --json" 69 $?
    same "prints no array: an empty one would be an answer" "" "$(cat "$DIR/out")"
    has_line "says why" "$DIR/err" '^mortise: .*127\.0\.0\.1:1'
    "$BIN" -C "$DIR/away.conf" status --json "${N}a" "${N}b" >"$DIR/out" 2>"$DIR/err"
    same "status --json" 69 $?
    json_says "the problem in place of an answer" "$DIR/out" \
        "len(d)==1 and set(d[0])=={'name','problem'} and d[0]['name']=='${N}a' and '127.0.0.1:1' in d[0]['problem']"
    "$BIN" -C "$DIR/away.conf" status "${N}a" >"$DIR/out" 2>"$DIR/err"
    same "status" 69 $?
    same "prints no line" "" "$(cat "$DIR/out")"
    "$BIN" -C "$DIR/away.conf" watch >"$DIR/out" 2>"$DIR/err"
    same "watch" 69 $?
    has_line "says why" "$DIR/err" '^mortise: .*127\.0\.0\.1:1'
fi

what "a hundred locks"
# one process holds them all: a run inside of a run, a hundred deep, would be a hundred times three
for i in $(seq -w 100); do
    "$BIN" run "${N}many-$i" -- sh -c "while [ ! -e $DIR/enough ]; do sleep 0.2; done" &
done 2>/dev/null
hundred() { [ "$("$BIN" list "${N}many-" | wc -l)" -eq 100 ]; }
LIMIT=60
yes "are listed" until_true hundred
"$BIN" list "${N}many-" >"$DIR/out"
yes "in byte order" env LC_ALL=C sort -c "$DIR/out"
same "a narrower prefix" 10 "$("$BIN" list "${N}many-04" | wc -l)"
same "040 to 049" 10 "$("$BIN" list "${N}many-04" | cut -f 1 | grep -c "^${N}many-04[0-9]\$")"
same "no prefix that matches" "" "$("$BIN" list "${N}none-")"
"$BIN" list --json "${N}many-" >"$DIR/out"
json_says "--json" "$DIR/out" 'len(d)==100 and all(x["held"] for x in d)'
same "none that matches is an empty array" "[]" "$("$BIN" list --json "${N}none-")"
begin=$(ms)
"$BIN" list >/dev/null
yes "fast ($(($(ms) - begin)) ms)" [ $(($(ms) - begin)) -lt 10000 ]
: >"$DIR/enough"
none() { [ -z "$("$BIN" list "${N}many-")" ]; }
yes "and all are released" until_true none

what "names that are not harmless text"
odd=$(printf 'x\033[31m"\\\nend\377\302\233')
hold "$N$odd"
"$BIN" list "${N}x" >"$DIR/out"
same "one line" 1 "$(wc -l <"$DIR/out")"
same "no control character or foreign byte in it" "" "$(LC_ALL=C grep -c '[[:cntrl:]]' <(tr -d '\t\n' <"$DIR/out") | sed 's/^0$//')"
has_line "escaped" "$DIR/out" 'x\\x1b\[31m"\\\\\\nend\\xff\\xc2\\x9b'
"$BIN" list --json "${N}x" >"$DIR/out"
same "JSON: no C1 control in it" 0 "$(LC_ALL=C grep -c "$(printf '\302\233')" "$DIR/out")"
json_says "JSON: valid, and the bytes are there" "$DIR/out" \
    "bytes.fromhex(d[0]['name_hex']).endswith(b'x\\x1b[31m\"\\\\\\nend\\xff\\xc2\\x9b')"
let_go "$HOLDER"
hold "${N}ü"
"$BIN" list --json "${N}ü" >"$DIR/out"
json_says "UTF-8 stays as it is" "$DIR/out" 'd[0]["name"].endswith("ü") and "name_hex" not in d[0]'
let_go "$HOLDER"

what "break"
"$BIN" break "${N}a" --token 7 >"$DIR/out" 2>"$DIR/err"
same "nobody holds it" 1 $?
has_line "said" "$DIR/err" "^mortise: nobody holds \"${N}a\"; nothing was done"
hold "${N}a"
token=$(json "${N}a" token)
"$BIN" break "${N}a" --token $((token + 1)) 2>"$DIR/err"
same "another token" 1 $?
has_line "said" "$DIR/err" "^mortise: \"${N}a\" changed hands: .* \(pid $HOLDER\) holds it with token $token, not $((token + 1)); nothing was done"
yes "the lock is held" is_held "${N}a"
let_go "$HOLDER"
hold "${N}a"
second=$HOLDER
"$BIN" break "${N}a" --token "$token" 2>"$DIR/err"
same "a grant that changed hands since the operator looked" 1 $?
has_line "said" "$DIR/err" "changed hands: .* \(pid $second\)"
yes "the new holder keeps it" is_held "${N}a"
yes "its command runs" alive "$HOLDER_COMMAND"
"$BIN" break "${N}a" --token "$(json "${N}a" token)" >"$DIR/out" 2>"$DIR/err"
same "the right token" 0 $?
has_line "said, on stderr" "$DIR/err" "^mortise: broke \"${N}a\": the grant with token [0-9]+ was taken from .* \(pid $second\)"
same "nothing on stdout" "" "$(cat "$DIR/out")"
yes "it is free" is_free "${N}a"
let_go "$HOLDER"

what "watch, through a pipe"
"$BIN" watch --interval 50ms "${N}w" >"$DIR/watch" 2>"$DIR/err" &
watcher=$!
hold "${N}w1"
yes "taken" until_true holds "$DIR/watch" "	held	${N}w1	[^	]+	$HOLDER	[0-9]+	exclusive	1\$"
first=$HOLDER
hold "${N}other"
other=$HOLDER
let_go "$first"
yes "released" until_true holds "$DIR/watch" "	released	${N}w1	[^	]+	$first	"
no "another prefix is not shown" holds "$DIR/watch" other
let_go "$other"
kill -TERM $watcher
same_code "TERM ends it" 143 $watcher
has_line "an instant begins the line" "$DIR/watch" '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}[+-][0-9]{4}	'
same "no escape sequences" 0 "$(grep -c $'\033' "$DIR/watch")"
"$BIN" watch --json --interval 50ms "${N}w" >"$DIR/watch" &
watcher=$!
hold "${N}w1"
until_true lines_in "$DIR/watch" 1
let_go "$HOLDER"
until_true lines_in "$DIR/watch" 2
kill -INT $watcher
same_code "INT ends it" 130 $watcher
json_says "--json: an object a line" "$DIR/watch" \
    '[x["event"] for x in d]==["held","released"] and d[0]["held"] and not d[1]["held"]'
hold "${N}w1"
"$BIN" watch --interval 50ms "${N}w" | head -n 1 >"$DIR/watch"
same "ends when its reader has seen enough" "${N}w1" "$(cut -f 3 "$DIR/watch")"
let_go "$HOLDER"

what "watch, whose reader is stuck: a signal stops and ends it"
mkfifo "$DIR/full"
exec 8<>"$DIR/full" # nobody gets a broken pipe
for size in 4096 1; do # it takes no byte more
    dd if=/dev/zero of="$DIR/full" oflag=nonblock bs=$size count=1000000 2>/dev/null
done
writes() { # it waits inside of the kernel: write(1, …) is 1 on x86-64, and 64 on ARM and RISC-V
    holds "/proc/$1/wchan" pipe_write || holds "/proc/$1/syscall" '^(1|64) 0x1 '
} 2>/dev/null
tells() { holds /proc/$$/wchan '[a-z]' || holds /proc/$$/syscall '^[0-9]'; } 2>/dev/null
stuck() { # a watch that has something to say there
    "$BIN" watch --interval 50ms "${N}w" >"$DIR/full" &
    watcher=$!
    yes "it is stuck" until_true writes $watcher
}
hold "${N}w1"
if tells; then
    stuck
    kill -TSTP $watcher
    yes "TSTP" until_true stopped $watcher
    kill -CONT $watcher
    for number in TERM INT; do
        kill -$number $watcher
        yes "$number" until_true gone $watcher
        kill -KILL $watcher 2>/dev/null
        same_code "the code" $((128 + $(kill -l $number))) $watcher
        [ $number = INT ] || stuck
    done
else
    echo "not checked here: this kernel does not tell in which call a process waits"
fi
exec 8>&-

what "watch, started with its signals blocked, as some supervisors do: they stop and end it"
: >"$DIR/watch"
env --block-signal=INT,TERM,HUP,QUIT,TSTP "$BIN" watch --interval 50ms "${N}w" >"$DIR/watch" &
watcher=$!
until_true filled "$DIR/watch"
kill -TSTP $watcher
yes "TSTP" until_true stopped $watcher
kill -CONT $watcher
kill -TERM $watcher
yes "TERM" until_true gone $watcher
kill -KILL $watcher 2>/dev/null
same_code "the code" 143 $watcher
let_go "$HOLDER"

what "check"
"$BIN" check >"$DIR/out"
same "all is right" 0 $?
has_line "the config" "$DIR/out" '^config +ok '
has_line "the driver" "$DIR/out" '^driver +ok .*lease'
has_line "the server" "$DIR/out" '^server +ok .*answered in'
"$BIN" check --json >"$DIR/out"
json_says "--json" "$DIR/out" 'all(x["ok"] for x in d) and {"config","driver","server"} <= {x["what"] for x in d}'

what "drivers"
driver=$("$BIN" run "${N}a" -- printenv MORTISE_DRIVER)
"$BIN" drivers >"$DIR/out"
has_line "the driver in use is listed, and where it is" "$DIR/out" "^$driver	driver	[0-9.]+	[0-9]+	[a-z,]+	/.*/$driver\.so	"
has_line "the core too" "$DIR/out" '^mortise	core	'
"$BIN" drivers "$driver" >"$DIR/out"
same "one by name" 1 "$(wc -l <"$DIR/out")"
"$BIN" drivers mortise --options >"$DIR/out"
has_line "the core's keys" "$DIR/out" '^ttl	duration	.*	30s	'
"$BIN" drivers "$driver" --options >"$DIR/out"
yes "the driver's keys" [ -s "$DIR/out" ]
same "each with a help" 0 "$(awk -F '\t' 'NF != 5 || $5 == "" || $5 == "-"' "$DIR/out" | wc -l)"
"$BIN" drivers --json >"$DIR/out"
json_says "--json" "$DIR/out" "[m for m in d if m['name']=='$driver'][0]['options'][0]['key']"
mkdir "$DIR/modules"
echo rubbish >"$DIR/modules/broken.so"
chmod 755 "$DIR/modules" "$DIR/modules/broken.so"
MORTISE_MODULE_PATH=$DIR/modules:${MORTISE_MODULE_PATH:-} "$BIN" drivers >"$DIR/out" 2>"$DIR/err"
same "a module that cannot be loaded: the code" 78 $?
has_line "and the reason" "$DIR/out" '^broken	.*broken\.so'

what "schema, bench"
"$BIN" schema "$driver" >"$DIR/out" 2>"$DIR/err"
got=$?
if [ $got -eq 0 ]; then
    yes "the statements" [ -s "$DIR/out" ]
else
    same "a driver without one" 69 $got
    has_line "says so" "$DIR/err" '^mortise: '
fi
"$BIN" schema no-such-driver >/dev/null 2>"$DIR/err"
same "a driver that is not there" 78 $?
has_line "said" "$DIR/err" '^mortise: .*no-such-driver'
mkdir "$DIR/bin"
printf '#!/bin/sh\necho "${MORTISE_BENCH_CONFIG:-}" bench "$@"\n' >"$DIR/bin/mortise-bench"
chmod 755 "$DIR/bin/mortise-bench"
cp "$BIN" "$DIR/bin/mortise" # the one beside the command comes first
same "bench hands over, with its words" " bench --x y" "$("$DIR/bin/mortise" bench --x y)"
same "and with -C, which may have a password: not as a word" "sqlite:/b bench --x y" \
    "$("$DIR/bin/mortise" -C sqlite:/b bench --x y)"

what "names that would reorder or break the line"
hostile=$(printf '%sa\342\200\256b\342\200\250c<script>"\301\247' "$N")
hold "$hostile"
"$BIN" list "$N" >"$DIR/listed"
has_line "list escapes them" "$DIR/listed" "^${N}a\\\\u202eb\\\\u2028c<script>\"\\\\xc1\\\\xa7	"
"$BIN" list --json "$N" >"$DIR/listed"
has_line "and --json" "$DIR/listed" '"name":"'"${N}"'a\\u202eb\\u2028c<script>\\"'
let_go "$HOLDER"

what "completion"
complete_words() { # WORDS…: what is offered for the last one
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
        _mortise; printf "%s\n" "${COMPREPLY[@]}"' x \
        "$(dirname "$0")/../../tools/completion/mortise.bash" "$@" | sort | xargs
}
same "commands" "schema serve status" "$(complete_words mortise s)"
yes "options of run" [ "$(complete_words "$BIN" run --on)" = "--on-loss" ]
same "values" "kill warn" "$(complete_words "$BIN" run --on-loss '')"
for option in -w --wait --timeout; do
    same "times behind $option" "10s 1m forever" "$(complete_words "$BIN" run $option '')"
done
hold "${N}complete-me"
same "names that are held" "${N}complete-me" "$(complete_words "$BIN" status "${N}comp")"
same "the token of a lock that is named" "$(json "${N}complete-me" token)" \
    "$(complete_words "$BIN" break "${N}complete-me" --token '')"
let_go "$HOLDER"
complete_line() { # LINE: what is offered at its end; bash splits at : and = and @ too, and replaces only what is behind
    bash -c '. "$1"; COMP_LINE=$2
        mapfile -t COMP_WORDS < <(sed "s/[:=@]\+/\n&\n/g; s/ /\n/g; s/\n\n/\n/g" <<<"$2")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_POINT=${#2}
        _mortise; printf "%s\n" "${COMPREPLY[@]}"' x "$(dirname "$0")/../../tools/completion/mortise.bash" "$1" | sort | xargs
}
hold "${N}colon:one"
one=$HOLDER
hold "${N}colon:two"
same "names with a colon" "${N}colon:one ${N}colon:two" "$(complete_line "$BIN status ${N}col")"
same "behind the colon" "one two" "$(complete_line "$BIN status ${N}colon:")"
same "and a letter" "two" "$(complete_line "$BIN status ${N}colon:t")"
same "its token" "$(json "${N}colon:two" token)" "$(complete_line "$BIN break ${N}colon:two --token ")"
case $MORTISE_CONFIG in
*[\ \;\&]*) printf 'not checked here: a URL with characters that have to be quoted\n' ;;
*) same "with a URL" "two" "$(env -u MORTISE_CONFIG bash -c "$(declare -f complete_line); complete_line '$BIN -C $MORTISE_CONFIG status ${N}colon:t'" "$0")" ;;
esac
let_go "$HOLDER"
let_go "$one"
if "$BIN" check | grep -q '^locks .* shared, permits'; then
    hold "${N}share" --shared
    one=$HOLDER
    hold "${N}share" --shared
    same "the tokens of all that share a lock" "$("$BIN" status "${N}share" | cut -f 8 | sort | xargs)" \
        "$(complete_line "$BIN break ${N}share --token ")"
    same "two" 2 "$(complete_line "$BIN break ${N}share --token " | wc -w)"
    let_go "$HOLDER"
    let_go "$one"
fi

end
