#!/bin/sh
# Wrong arguments: one line on stderr that says what is wrong, nothing on stdout, and the exit code for it.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

# refused CODE PATTERN ARGUMENTS…
refused() {
    local wanted=$1 pattern=$2 got
    shift 2
    "$BIN" "$@" >"$DIR/out" 2>"$DIR/err" </dev/null
    got=$?
    if [ $got -ne "$wanted" ]; then
        wrong "mortise $(printf '%.60q ' "$@"): wanted code $wanted, got $got: $(head -c 300 "$DIR/err")"
    elif [ "$(wc -l <"$DIR/err")" -ne 1 ] || ! holds "$DIR/err" "^mortise: "; then
        wrong "mortise $(printf '%.60q ' "$@"): not one line: $(head -c 300 "$DIR/err")"
    elif [ -s "$DIR/out" ]; then
        wrong "mortise $(printf '%.60q ' "$@"): wrote to stdout: $(head -c 300 "$DIR/out")"
    elif ! holds "$DIR/err" "$pattern"; then
        wrong "mortise $(printf '%.60q ' "$@"): does not match $pattern: $(head -c 300 "$DIR/err")"
    else
        ok "$(printf '%.60q ' "$@") -> $got, $(head -c 120 "$DIR/err")"
    fi
}

huge=$(printf '9%.0s' $(seq 2000))
bytes=$(printf 'a\033[31m\377')

what "commands"
refused 64 'no command given'
refused 64 'unknown command "rum" \(did you mean "run"\?\)' rum
refused 64 'did you mean "status"' stauts x
refused 64 'did you mean "drivers"' driver
refused 64 'unknown command "xyzzy";' xyzzy
refused 64 'unknown command ""' ''
refused 64 'unknown command "a\\x1b\[31m\\xff"' "$bytes"
refused 64 'unknown command' "$huge"
refused 64 'unknown option --jsn' --jsn
refused 64 'unknown option -x' -x
refused 64 'option -C needs a value' -C
refused 64 'option -C needs a file' -C '' check

what "run: times"
for option in -w --wait --ttl --grace; do
    refused 64 'needs a value' run $option
    for value in '' abc 10x 5.s .5 -1 -1s '1 s' ' 1s' "1s,2" 1e9 0x10 "$huge" 99999999999999999999s NaN "$bytes"; do
        refused 64 'is not a time such as' run $option "$value" x -- true
    done
done
refused 64 '--ttl "0" is not between 50 ms and 1 d' run --ttl 0 x -- true
refused 64 '--ttl "49ms" is not between' run --ttl 49ms x -- true
refused 64 '--ttl "25h" is not between' run --ttl 25h x -- true
refused 64 '-w "366d" is not between' run -w 366d x -- true
refused 64 '-w "5000000000d" is not a time' run -w 5000000000d x -- true

what "run: other options"
for value in '' abc -1 256 1.5 "$huge" ' 1' +1 0x1 "$bytes"; do
    refused 64 'is not an exit code from 0 to 255' run -E "$value" x -- true
done
refused 64 'option -E needs a value' run -E
for value in '' KILL wrn "$huge" "$bytes"; do
    refused 64 'is neither kill nor warn' run --on-loss "$value" x -- true
done
refused 64 'option --on-loss needs a value' run --on-loss
refused 64 'unknown option --tll' run --tll 5s x -- true
refused 64 'unknown option -x' run -x x -- true
refused 64 'option --nonblock takes no value' run --nonblock=yes x -- true
refused 64 'option -C needs a value' run -C
refused 64 'option -C needs a file' run -C '' x -- true
refused 64 'no lock named' run
refused 64 'no lock named' run -n
refused 64 'the name of the lock is empty' run '' -- true
refused 64 'longer than 512 bytes' run "$huge" -- true
refused 64 'no command given' run x
refused 64 'no command given' run x --
refused 64 'the command is empty' run x -- ''
refused 64 '-c takes one string, not 2' run -c x -- echo two
refused 64 'no command given' run -c x

what "the others"
refused 64 'no lock named' status
refused 64 'the name of the lock is empty' status x ''
refused 64 'longer than 512 bytes' status "$huge"
refused 64 'unknown option --josn' status --josn x
refused 64 'only one prefix' list a b
refused 64 'the prefix is longer' list "$huge"
refused 64 'only one prefix' watch a b
for value in '' abc 0 1ms 2h "$huge"; do
    refused 64 'is not a time between' watch --interval "$value"
done
refused 64 'no lock named' break --token 5
refused 64 '--token is missing' break x
refused 64 'only one lock' break x y --token 5
for value in '' 0 -1 abc 1x 1.0 18446744073709551616 "$huge" "$bytes"; do
    refused 64 'is not a token' break x --token "$value"
done
refused 64 'option --token needs a value' break x --token
refused 64 'it takes no arguments' check x
refused 64 'only one module' drivers a b
refused 64 '--options needs the NAME' drivers --options
refused 69 'there is no module "no-such-one"' drivers no-such-one
refused 69 'there is no module' drivers "$bytes"
refused 64 'no driver named' schema
refused 64 'only one driver' schema a b
refused 64 'expected status, plan or advance' migrate
refused 64 'expected status' migrate status plan
refused 64 '"stats" is not one of status, plan' migrate stats
refused 64 'status has no --back' migrate --back status
refused 64 'advance has no --json' migrate advance --json
refused 64 'plan does not wait' migrate plan -w 5s
refused 64 'is not a time such as' migrate advance -w soon
refused 64 '--section needs' migrate status --section ''
refused 78 'migrate needs a config file' -C "sqlite:$DIR/locks.db" migrate status
refused 78 'sqlite takes no password' -C "sqlite://:SECRET@h" migrate status
no "the password is not shown" grep -q SECRET "$DIR/err"
refused 78 '^mortise: host=\.\.\.: cannot be read' -C "host=h password=SECRET" migrate status
no "nor that of a connection string" grep -q SECRET "$DIR/err"
refused 78 'no section \[migrate\] with a phase' -C /dev/null migrate status

what "a configuration that cannot be used"
for command in 'run x -- true' 'status x' list 'break x --token 1' 'watch x'; do
    # shellcheck disable=SC2086 # words
    refused 78 "none.conf" -C "$DIR/none.conf" $command
done
"$BIN" -C "$DIR/none.conf" check >"$DIR/out" 2>"$DIR/err"
same "check of a config that is not there" 78 $?
has_line "says so on stdout" "$DIR/out" 'wrong.*none.conf'
printf '[mortise]\ndriver = sqlite\ntll = 3s\n' >"$DIR/bad.conf"
refused 78 'bad.conf:3.*tll.*did you mean "ttl"' -C "$DIR/bad.conf" run x -- true
place() { # PATH PATTERN: what a path of sqlite is refused with
    printf '[mortise]\ndriver = sqlite:a\n[sqlite:a]\nbusy_timeout = 1s\npath = %s\n' "$1" >"$DIR/place.conf"
    refused 78 "place.conf:5: \\[sqlite:a\\] path: $2" -C "$DIR/place.conf" run x -- true
}
place locks.db '"locks.db"; expected the absolute path'
place "$DIR/none/locks.db" "cannot use the directory $DIR/none: No such file"
place "$DIR/bad.conf/locks.db" "cannot use .*bad.conf.*: Not a directory"
place "$DIR" '.*is not a file'
if [ "$(id -u)" -ne 0 ]; then
    mkdir -m 500 "$DIR/closed"
    place "$DIR/closed/locks.db" "$DIR/closed must be writable for uid"
fi
printf '[mortise]\ndriver = sqlite\n[sqlite]\nmode = 0800\n' >"$DIR/mode.conf"
refused 78 'mode.conf:4: \[sqlite\] mode is "0800"' -C "$DIR/mode.conf" run x -- true
refused 78 ': path: cannot use the directory' -C "sqlite:$DIR/none/locks.db" run x -- true
mkdir "$DIR/folder.conf"
refused 78 'folder.conf' -C "$DIR/folder.conf" run x -- true
refused 78 '.' -C 'nosuchscheme://host/' run x -- true

what "a path of a witness at which something else is"
mkdir -m 700 "$DIR/private"
printf mine >"$DIR/private/file"
ln -s file "$DIR/private/link"
for there in file link; do
    timeout "$LIMIT" "$BIN" witness --socket "$DIR/private/$there" 2>"$DIR/err"
    same "a $there" 64 $?
    has_line "said" "$DIR/err" "^mortise: witness: .*private/$there\": a file that is no socket is there"
done
same "the file is as it was" mine "$(cat "$DIR/private/file")"
same "nothing was added" "file link" "$(cd "$DIR/private" && echo *)"
yes "the link is one" [ -L "$DIR/private/link" ]
if command -v python3 >/dev/null; then
    python3 -c 'import signal, socket, sys
one = socket.socket(socket.AF_UNIX)
one.bind(sys.argv[1])
one.listen()
signal.pause()' "$DIR/private/stream" &
    until_true [ -S "$DIR/private/stream" ]
    timeout "$LIMIT" "$BIN" witness --socket "$DIR/private/stream" 2>"$DIR/err"
    same "the socket of another program" 64 $?
    has_line "said" "$DIR/err" '^mortise: witness: .*stream": the socket of another program is there'
    yes "it is still there" [ -S "$DIR/private/stream" ]
    same "nothing was added beside it" "file link stream" "$(cd "$DIR/private" && echo *)"
    kill $!
else
    echo "not checked here, the socket of another program: there is no python3"
fi

what "a witness that ends removes its socket, and nothing that is there since"
for since in '' mine; do
    : >"$DIR/err"
    "$BIN" witness --socket "$DIR/private/witness" 2>"$DIR/err" &
    witness=$!
    yes "it listens" until_true holds "$DIR/err" 'listens on'
    if [ -n "$since" ]; then
        printf %s "$since" >"$DIR/private/other"
        mv "$DIR/private/other" "$DIR/private/witness"
    fi
    kill $witness
    same_code "the code" 0 $witness
    if [ -n "$since" ]; then
        same "what came since is still there" "$since" "$(cat "$DIR/private/witness")"
    else
        no "the socket is removed" [ -e "$DIR/private/witness" ]
    fi
done

what "output that cannot be written"
if [ -w /dev/full ]; then
    for command in 'check' 'status x' 'drivers' '--help' 'run --help' '--version'; do
        # shellcheck disable=SC2086
        "$BIN" $command >/dev/full 2>"$DIR/err"
        same "$command to a full disk" 71 $?
        has_line "said" "$DIR/err" '^mortise: cannot write the output'
    done
fi

what "help"
for command in '' run status list break watch check drivers schema migrate; do
    # shellcheck disable=SC2086
    "$BIN" $command --help >"$DIR/out" 2>"$DIR/err"
    same "mortise $command --help" 0 $?
    has_line "says how it is used" "$DIR/out" "^Usage: mortise ${command:-\[}"
    same "lines are not too long" 0 "$(awk 'length > 100' "$DIR/out" | wc -l)"
done
"$BIN" --version >"$DIR/out"
has_line "--version" "$DIR/out" '^mortise [0-9]+\.[0-9]+\.[0-9]+'

end
