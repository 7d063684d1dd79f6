#!/bin/bash
# test_redis.sh - servers.sh itself, on Redis: what tests rely on. Waits only for events.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
DIR=$(mktemp -d "${TMPDIR:-/tmp}/mortise-servers.XXXXXX") || exit 99
failures=0
HOST6='' SENTINELS='' PORT='' PORT2='' PORT3='' SOCKET='' # of the server that was started last

servers() { # VERB FOLDER …
    sh "$here/../servers.sh" "$1" redis "$DIR/$2" "${@:3}"
}

# Whatever runs: idle servers and their guards take more time than what is tried with them.
end_all() {
    local folder
    for folder in "$DIR"/*/; do
        folder=${folder%/}
        servers end "${folder##*/}" 2>/dev/null
        rm -rf -- "$folder"
    done
}

clean_up() {
    end_all
    rm -rf -- "$DIR"
}
trap clean_up EXIT

ok() {
    printf 'ok    %s\n' "$1"
}

wrong() {
    failures=$((failures + 1))
    printf 'WRONG %s\n' "$1"
}

same() { # TEXT WANTED GOT
    if [ "$2" = "$3" ]; then ok "$1"; else wrong "$1: wanted \"$2\", got \"$3\""; fi
}

like() { # TEXT PATTERN GOT
    if grep -Eq -- "$2" <<<"$3"; then ok "$1"; else wrong "$1: no line like $2 in: $3"; fi
}

exits() { # TEXT CODE COMMAND…
    local code=0
    "${@:3}" >"$DIR/out" 2>"$DIR/err" || code=$?
    same "$1" "$2" "$code"
}

# start FOLDER KEY=VALUE…: the values are in $HOST, $PORT, $PORT2 …
start() {
    mkdir -p "$DIR/$1"
    local values
    values=$(servers start "$1" guard=$$ "${@:2}") || {
        wrong "start $*"
        exit 1
    }
    eval "$values"
}

cli() { # PORT WORD…: as a client without rights of its own
    timeout 10 redis-cli -h 127.0.0.1 -p "$1" "${@:2}" 2>&1
}

pid_in() { # FOLDER [NAME]
    cut -d' ' -f1 "$DIR/$1/${2:-1}.pid"
}

runs() {
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    case ${stat##*) } in
    Z*) return 1 ;;
    esac
}

soon() { # COMMAND…: within 60 s, by which failure is bounded
    local until=$((SECONDS + 60))
    while [ $SECONDS -lt $until ]; do
        "$@" && return 0
        sleep 0.1 # what is waited for takes seconds, and a look some milliseconds of a processor
    done
    return 1
}

gone() {
    ! runs "$1"
}

test_life() {
    mkdir "$DIR/life"
    code=0
    servers start life guard=$$ >"$DIR/values" || code=$?
    if [ "$code" -eq 77 ]; then
        echo 'SKIP: no redis-server here'
        exit 77
    fi
    eval "$(cat "$DIR/values")"
    same 'it answers' PONG "$(cli "$PORT" ping)"
    same 'values says the same again' "$(cat "$DIR/values")" "$(servers values life)"
    local port=$PORT pid
    pid=$(pid_in life)
    same 'started twice, it is the same one' "PORT=$port" "$(servers start life | grep PORT)"
    same 'the same process' "$pid" "$(pid_in life)"
    same 'it asks as one who may do all' "process_id:$pid" \
        "$(servers ask life info server | tr -d '\r' | grep process_id)"
    cli "$PORT" set kept no >/dev/null
    exits 'stop' 0 servers stop life
    if runs "$pid"; then wrong 'it has ended then'; else ok 'it has ended then'; fi
    like 'nobody answers' refused "$(cli "$port" ping)"
    exits 'a second stop fails' 1 servers stop life
    like 'and shows the log' 'ready to exit' "$(cat "$DIR/err")"
    start life
    same 'the port is the same after a restart' "$port" "$PORT"
    same 'nothing was to be kept' '' "$(cli "$PORT" get kept)"
}

test_freeze() {
    start freeze
    local pid
    pid=$(pid_in freeze)
    exits 'freeze' 0 servers freeze freeze
    like 'it is stopped' '\) T ' "$(cat "/proc/$pid/stat")"
    timeout 0.3 redis-cli -p "$PORT" ping >/dev/null
    same 'it takes requests and answers none' 124 $?
    exits 'thaw' 0 servers thaw freeze
    same 'it answers again' PONG "$(cli "$PORT" ping)"
    servers freeze freeze
    exits 'stop of a frozen one' 0 servers stop freeze
    if runs "$pid"; then wrong 'it has ended'; else ok 'it has ended'; fi
    start freeze
    pid=$(pid_in freeze)
    servers freeze freeze
    exits 'end of a frozen one' 0 servers end freeze
    if runs "$pid"; then wrong 'that one has ended'; else ok 'that one has ended'; fi
    exits 'end again' 0 servers end freeze
    exits 'end of what was never there' 0 servers end nothing
}

test_durable() {
    start durable aof=yes
    cli "$PORT" set kept yes >/dev/null
    servers kill durable
    exits 'what was killed is not running' 1 servers freeze durable
    start durable
    same 'it has kept what it promised, over kill -9' yes "$(cli "$PORT" get kept)"
    servers stop durable
    start durable
    same 'and over a stop' yes "$(cli "$PORT" get kept)"
}

test_replicas() {
    start replicas replicas=2 password=secret
    export REDISCLI_AUTH=secret
    cli "$PORT" set a 1 >/dev/null
    same 'both replicas follow' 2 "$(cli "$PORT" wait 2 10000)"
    same 'the first has it' 1 "$(cli "$PORT2" get a)"
    like 'and takes no writes' READONLY "$(cli "$PORT3" set a 2)"
    exits 'one of them is stopped' 0 servers stop replicas only=2
    like 'the others run' PONG "$(cli "$PORT3" ping)"
    like 'that one does not' refused "$(cli "$PORT2" ping)"
    start replicas only=2
    same 'it follows again' 1 "$(cli "$PORT2" get a)"
    exits 'kill the primary alone' 0 servers kill replicas only=1
    same 'the replica is there still' 1 "$(cli "$PORT3" get a)"
    unset REDISCLI_AUTH
}

primary_is() { # FOLDER PORT
    servers ask "$1" only=s1 sentinel get-master-addr-by-name locks | grep -qx "$2"
}

another_primary() { # PORT-OF-A-SENTINEL PORT
    local now
    now=$(REDISCLI_AUTH=watch cli "$1" sentinel get-master-addr-by-name locks | tail -n 1)
    case $now in
    '' | *[!0-9]* | "$2") return 1 ;;
    esac
}

test_sentinels() {
    start sentinels replicas=2 sentinels=3 password=secret sentinel_password=watch
    local first=$PORT
    if soon primary_is sentinels "$first"; then ok 'the sentinels know the primary'; else wrong 'the sentinels do not'; fi
    like 'they have a password' NOAUTH "$(cli "${SENTINELS##*:}" ping)"
    servers kill sentinels only=1
    if soon another_primary "${SENTINELS##*:}" "$first"; then ok 'they choose another'; else wrong 'no failover'; fi
    start sentinels only=1
    exits 'a sentinel is stopped' 0 servers stop sentinels only=s2
}

test_nodes() {
    start nodes nodes=3
    same 'three masters' 'master master master' \
        "$(for port in $PORT $PORT2 $PORT3; do cli "$port" role | head -n 1; done | xargs)"
}

test_secrets() {
    start password password=secret
    like 'no password, no answer' NOAUTH "$(cli "$PORT" ping)"
    same 'with the password' PONG "$(REDISCLI_AUTH=secret cli "$PORT" ping)"
    same 'who asks has it' PONG "$(servers ask password ping)"
    same 'the configuration is nobody else'"'"'s to read' 600 "$(stat -c %a "$DIR/password/1/redis.conf")"

    start acl user=mortise password=few
    like 'the default user is off' NOAUTH "$(cli "$PORT" ping)"
    local as='--user mortise --pass few --no-auth-warning'
    # shellcheck disable=SC2086 # words
    {
        same 'allowed: a script' 1 "$(cli "$PORT" $as eval "return redis.call('incr', KEYS[1])" 1 n)"
        same 'allowed: publish' 0 "$(cli "$PORT" $as publish channel text)"
        same 'allowed: wait' 0 "$(cli "$PORT" $as wait 0 1)"
        like 'denied: flushall' NOPERM "$(cli "$PORT" $as flushall)"
        like 'denied: config' NOPERM "$(cli "$PORT" $as config get save)"
        like 'denied: keys' NOPERM "$(cli "$PORT" $as keys '*')"
    }
    same 'who asks may do all' n "$(servers ask acl keys '*')"
    start rights user=reader password=few 'rights=~r* +get'
    as='--user reader --pass few --no-auth-warning'
    # shellcheck disable=SC2086
    like 'rights as given' NOPERM "$(cli "$PORT" $as get another)"
}

test_places() {
    start socket socket=yes
    same 'the unix socket answers' PONG "$(redis-cli -s "$SOCKET" ping)"
    if grep -q '^0*1 ' /proc/net/if_inet6 2>/dev/null; then
        start ipv6 ipv6=yes
        same '::1 answers' PONG "$(redis-cli -h "$HOST6" -p "$PORT" ping)"
    fi
    start lines maxmemory=20mb 'conf=maxclients 17' 'conf=timeout 0'
    same 'maxmemory' 20971520 "$(cli "$PORT" config get maxmemory | tail -n 1)"
    same 'a line of the configuration' 17 "$(cli "$PORT" config get maxclients | tail -n 1)"
}

# A node that runs waits for one that is launched after it.
test_cluster() {
    start cluster cluster=3 node_timeout=500
    like 'a cluster' cluster_state:ok "$(servers ask cluster cluster info)"
    servers kill cluster only=3
    until cli "$PORT" cluster info | grep -q cluster_state:fail; do sleep 0.1; done
    exits 'the third is started again' 0 timeout 60 sh "$here/../servers.sh" start redis "$DIR/cluster"
    like 'a cluster again' cluster_state:ok "$(servers ask cluster cluster info)"
}

test_ports() {
    start there
    same 'ports for others: another one each time, below those of outgoing connections' 3 \
        "$({ echo "$PORT"; servers port there; servers port there; } | sort -u | awk '$1 < 32768' | wc -l)"
    mkdir "$DIR/taken"
    echo "$PORT" >"$DIR/taken/1.port"
    local before=$PORT
    start taken
    if [ "$PORT" != "$before" ]; then ok 'a port that is taken: another'; else wrong "both at $PORT"; fi
    same 'and it is ours that answers' "$(pid_in taken)" \
        "$(cli "$PORT" info server | tr -d '\r' | sed -n 's/^process_id://p')"
    servers stop taken
    echo "$before" >"$DIR/taken/1.port"
    exits 'taken while it was away: no other port' 1 servers start taken
    like 'and it says so' 'was taken' "$(cat "$DIR/err")"
    same 'who sits there is left alone' PONG "$(cli "$before" ping)"
}

test_refusals() {
    mkdir "$DIR/refused"
    exits 'an unknown key' 1 servers start refused colour=red
    exits 'a value of two lines' 1 servers start refused "conf=a
b"
    exits 'an unknown verb' 64 servers paint refused
    exits 'a server that dies at once' 1 servers start refused 'conf=no-such-setting 1'
    like 'its log is shown' no-such-setting "$(cat "$DIR/err")"
    mkdir "$DIR/bin" "$DIR/absent"
    for program in sh dirname sed cat; do
        ln -s "$(command -v "$program")" "$DIR/bin/"
    done
    exits 'not installed: a skip' 77 env PATH="$DIR/bin" sh "$here/../servers.sh" start redis "$DIR/absent"
    rm -r -- "${DIR:?}/bin"
}

# A pid that is another process's by now.
test_pids() {
    start pids
    local pid
    pid=$(pid_in pids)
    cp "$DIR/pids/1.pid" "$DIR/note"
    sleep 100 &
    echo "$! $(cut -d' ' -f2 "$DIR/note")" >"$DIR/pids/1.pid"
    exits 'kill of a pid that is another process'"'"'s by now' 1 servers kill pids
    exits 'end' 0 servers end pids
    if runs $!; then ok 'that process is left alone'; else wrong 'that process was ended'; fi
    kill $!
    cp "$DIR/note" "$DIR/pids/1.pid"
    exits 'end of our own' 0 servers end pids
    if runs "$pid"; then wrong 'it has ended'; else ok 'it has ended'; fi
}

# another_nap PID CHILD: that process sleeps, and this is another sleep
another_nap() {
    local child
    child=$(ps -o pid= --ppid "$1")
    [ -n "$child" ] && [ "$child" != "$2" ]
}

# Somebody deletes the folder, and ends nothing. The guard has noted what runs when it sleeps again.
test_deleted() {
    start deleted nodes=2
    local pids guard one
    pids="$(pid_in deleted) $(pid_in deleted 2)" guard=$(pid_in deleted guard)
    soon another_nap "$guard" "$(ps -o pid= --ppid "$guard")" || wrong 'the guard looks no more'
    servers freeze deleted only=2
    rm -rf -- "$DIR/deleted"
    for one in $pids $guard; do
        if soon gone "$one"; then ok 'ended with its folder'; else wrong "pid $one lives on"; fi
    done
}

test_guard() {
    mkdir "$DIR/guard"
    sleep 100 &
    local guarded=$! pid
    servers start guard guard=$guarded nodes=2 >/dev/null
    pid="$(pid_in guard) $(pid_in guard 2)"
    servers freeze guard only=2
    kill -9 $guarded
    wait $guarded 2>/dev/null
    for one in $pid; do
        if soon gone "$one"; then ok 'ended with its guarded process'; else wrong "pid $one lives on"; fi
    done
}

for part in life freeze durable replicas sentinels nodes secrets places cluster ports refusals pids guard deleted; do
    "test_$part"
    end_all
done
[ "$failures" -eq 0 ]
