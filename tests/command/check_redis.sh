#!/bin/sh
# mortise check on Redis: a server that answers, but cannot grant a lock, is not "ok".
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

for program in redis-server redis-cli; do
    command -v $program >/dev/null || skip "no $program"
done

serve() { # PROGRAM ARGUMENTS…: PORT is its port
    PORT=$(free_port)
    mkdir "$DIR/$PORT"
    "$@" --port "$PORT" --bind 127.0.0.1 --dir "$DIR/$PORT" >"$DIR/$PORT/log" 2>&1 &
    until_true answers || wrong "it does not start: $(cat "$DIR/$PORT/log")"
}
answers() { [ -n "$(redis-cli -p "$PORT" ping 2>&1 | grep -v 'Could not connect')" ]; }

checks() { # TEXT CODE PATTERN CONFIG
    local got
    "$BIN" -C "$4" check >"$DIR/out" 2>&1
    got=$?
    same "$1: the code" "$2" $got
    has_line "$1: said" "$DIR/out" "$3"
}

what "the primary"
serve redis-server --save ''
primary=$PORT
server=$!
checks "a primary" 0 '^server +ok +Redis' "redis://127.0.0.1:$primary"
redis-cli -p "$primary" ACL SETUSER noscripts on '>pw' '~*' '&*' +@all -eval -evalsha -script >/dev/null
checks "a user that may not run scripts" 69 '^server +wrong .*atomicity = watch' "redis://noscripts:pw@127.0.0.1:$primary"
checks "the same by WATCH" 0 '^server +ok' "redis://noscripts:pw@127.0.0.1:$primary?atomicity=watch"
redis-cli -p "$primary" ACL SETUSER norole on '>pw' '~*' '&*' +@all -role >/dev/null
checks "a user that may not ask for the role" 0 '^server +ok' "redis://norole:pw@127.0.0.1:$primary"

what "a closed stdout: the connection does not get its number, and so not the output"
redis-cli -p "$primary" CONFIG RESETSTAT >/dev/null
"$BIN" -C "redis://127.0.0.1:$primary" status x >&- 2>"$DIR/err"
same "the code" 71 $?
has_line "said" "$DIR/err" '^mortise: cannot write the output: Bad file descriptor'
no "the server got no table" holds <(redis-cli -p "$primary" INFO errorstats) '^errorstat_ERR'
"$BIN" -C "redis://127.0.0.1:$primary" run x -- sh -c "ls -l /proc/\$\$/fd >$DIR/fds" <&- >&- 2>&-
no "a command finds closed what is closed" holds "$DIR/fds" ' 0 ->'

what "a run of eight names inside a run, while the server does not answer: it asks for a holder once"
begin=$(ms)
kill -STOP "$server"
MORTISE_OWNER=outer MORTISE_NAME=other "$BIN" -C "redis://127.0.0.1:$primary" run -n 1 2 3 4 5 6 7 8 -- true 2>"$DIR/err"
same "the code" 69 $?
soon "$begin" 10000 "soon"
MORTISE_OWNER=outer MORTISE_NAME=2 "$BIN" -C "redis://127.0.0.1:$primary" run -n 1 2 -- true 2>"$DIR/err"
same "the outer run's name is among them: the code" 75 $?
has_line "said" "$DIR/err" '^mortise: "?2"? is held by the mortise run that started this one'
kill -CONT "$server"

what "a run inside a run, as a user that may not ask: another error than no answer is no sign of the outer run"
redis-cli -p "$primary" ACL SETUSER nothing on '>pw' '~none*' '&*' +@all >/dev/null
MORTISE_OWNER=outer MORTISE_NAME=2 "$BIN" -C "redis://nothing:pw@127.0.0.1:$primary" run -n 2 -- true 2>"$DIR/err"
no "it does not end with the code of a held lock" [ $? = 75 ]
no "it does not say so" holds "$DIR/err" 'is held by the mortise run'

what "a replica"
serve redis-server --save '' --replicaof 127.0.0.1 "$primary"
checks "read-only" 69 "^server +wrong +127.0.0.1:$PORT is a replica.*primary" "redis://127.0.0.1:$PORT"

what "a Sentinel"
echo "sentinel monitor main 127.0.0.1 $primary 1" >"$DIR/sentinel.conf"
serve redis-server "$DIR/sentinel.conf" --sentinel
checks "its port as a server's" 69 "^server +wrong +127.0.0.1:$PORT is a Sentinel.*sentinel = " "redis://127.0.0.1:$PORT"

what "a password"
serve redis-server --save '' --requirepass secret
checks "missing" 69 "wrong.*NOAUTH.*password_file" "redis://127.0.0.1:$PORT"

what "kill -9 of a run whose password came out of a pipe, which is not for the keeper to open again"
mkfifo "$DIR/password"
printf '%s\n' '[mortise]' 'driver = redis' '[redis]' "servers = 127.0.0.1:$PORT" "password_file = $DIR/password" >"$DIR/piped.conf"
echo secret >"$DIR/password" &
"$BIN" -C "$DIR/piped.conf" run --ttl 10m x -- sh -c "echo \$\$ >$DIR/command; exec sleep 1000" &
wrapper=$!
yes "it runs" until_true filled "$DIR/command"
keeper=$(keeper_of $wrapper)
kill -KILL $wrapper
yes "the command is gone" until_true gone "$(cat "$DIR/command")"
yes "the keeper ends" until_true gone "$keeper"
kill -KILL "$keeper" 2>/dev/null
wait $wrapper 2>/dev/null
yes "the lock is left to its ttl" [ "$(redis-cli -p "$PORT" -a secret --no-auth-warning EXISTS mortise:x)" = 1 ]

end
