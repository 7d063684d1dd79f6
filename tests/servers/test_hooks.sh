#!/bin/bash
# test_hooks.sh - the conformance suite's hooks for Redis (conformance/redis.sh): what each verb does to a client, and that
# `left` finds what clients leave.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
DIR=$(mktemp -d "${TMPDIR:-/tmp}/mortise-hooks.XXXXXX") || exit 99
failures=0
HOST='' PORT='' # of the subject that was started last

hook() { # VERB [FOLDER]
    "$here/../conformance/redis.sh" "$1" "$DIR/${2:-plain}"
}

clean_up() {
    for folder in "$DIR"/*/; do
        hook end "$(basename "$folder")" 2>/dev/null
    done
    rm -rf -- "$DIR"
}
trap clean_up EXIT

same() { # TEXT WANTED GOT
    if [ "$2" = "$3" ]; then
        printf 'ok    %s\n' "$1"
    else
        failures=$((failures + 1))
        printf 'WRONG %s: wanted "%s", got "%s"\n' "$1" "$2" "$3"
    fi
}

like() { # TEXT PATTERN GOT
    if grep -Eq -- "$2" <<<"$3"; then same "$1" '' ''; else same "$1" "$2" "$3"; fi
}

start() { # FOLDER
    local values code=0
    mkdir -p "$DIR/$1"
    values=$(hook start "$1") || code=$?
    if [ "$code" -ne 0 ]; then
        echo "start: exit code $code"
        exit "$code" # 77: no Redis here
    fi
    eval "$values"
}

cli() { # WORD…: through the proxy
    timeout 20 redis-cli -h "$HOST" -p "$PORT" "$@" 2>&1
}

test_verbs() {
    start plain
    local port=$PORT
    same 'it answers' PONG "$(cli ping)"
    hook freeze
    timeout 0.3 redis-cli -h "$HOST" -p "$PORT" incr n >/dev/null
    same 'frozen: no answer' 124 $?
    hook thaw
    like 'thawed' '^[0-9]+$' "$(cli incr n)"
    hook lose
    cli set lost 1 >"$DIR/lost" &
    until [ "$(sh "$here/../servers.sh" ask redis "$DIR/plain/server" get lost)" = 1 ]; do
        sleep 0.05 # until it is executed
    done
    timeout 0.3 redis-cli -h "$HOST" -p "$PORT" ping >/dev/null
    same 'lost: no answer' 124 $?
    same 'nor to what was executed' '' "$(cat "$DIR/lost")"
    kill $!
    hook pass
    hook stop
    like 'stopped: refused' refused "$(cli ping)"
    start plain
    same 'started: the same port' "$port" "$PORT"
    same 'it answers again' PONG "$(cli ping)"
}

# Looks for what is left, where something is: it will not go.
left_now() {
    MORTISE_LEFT_PATIENCE_S=0 hook left "$@"
}

test_left() {
    same 'nothing is left' '' "$(hook left)"
    cli setex '{a}:mortise:token' 1000 1 >/dev/null
    same 'a token that will go' '' "$(hook left)"
    cli set $'lock\n1' 1 >/dev/null
    like 'a key' 'key lock.n1' "$(left_now)"
    cli del $'lock\n1' >/dev/null
    cli persist '{a}:mortise:token' >/dev/null
    like 'a token that stays' 'key without a ttl \{a\}:mortise:token' "$(left_now)"
    cli del '{a}:mortise:token' >/dev/null
    coproc timeout 300 redis-cli -h "$HOST" -p "$PORT" subscribe news
    read -r _ <&"${COPROC[0]}"
    local left
    left=$(left_now)
    like 'a subscription' '^subscribed channel news' "$left"
    like 'a connection' '^client id=' "$left"
    kill "$COPROC_PID"
    wait "$COPROC_PID" 2>/dev/null
    same 'nothing any more' '' "$(hook left)"
    hook freeze
    like 'a server that does not answer is no all-clear' 'does not answer' "$(left_now)"
    hook thaw
}

test_variants() {
    export MORTISE_SERVER='user=mortise password=secret replicas=1'
    start acl
    same 'as the user' OK "$(cli --user mortise --pass secret --no-auth-warning set a 1)"
    same 'deleted' 1 "$(cli --user mortise --pass secret --no-auth-warning del a)"
    same 'a replica is not left behind' '' "$(hook left acl)"
    cli --user mortise --pass secret --no-auth-warning flushall >/dev/null
    like 'what was denied is told' '^denied:.*flushall' "$(left_now acl)"
    unset MORTISE_SERVER
}

# The process that called `start` is gone without a word.
test_orphans() {
    mkdir "$DIR/orphan"
    bash -c '"$@" >/dev/null; kill -9 $$' - "$here/../conformance/redis.sh" start "$DIR/orphan" 2>/dev/null
    local pid
    pid=$(cut -d' ' -f1 "$DIR/orphan/server/1.pid")
    for _ in $(seq 600); do
        case $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) in
        '' | Z*) [ -S "$DIR/orphan/proxy.control" ] || break ;;
        esac
        sleep 0.1 # a guard looks every three seconds
    done
    case $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) in
    '' | Z*) same 'the server has ended with its caller' '' '' ;;
    *) same 'the server has ended with its caller' gone "pid $pid" ;;
    esac
    if [ -S "$DIR/orphan/proxy.control" ]; then
        same 'so has the proxy' '' "$DIR/orphan/proxy.control"
    else
        same 'so has the proxy' '' ''
    fi
}

test_verbs
test_left
test_variants
test_orphans
[ "$failures" -eq 0 ]
