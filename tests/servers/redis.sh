# redis.sh - private Redis servers, for servers.sh. Nothing here needs more than Redis 5; `user` needs 6.
#
# KEYs:
#   password=TEXT     requirepass. With `user`: that user's password
#   user=NAME         an ACL user with $rights and the password; the default user is off. "admin" with the
#                     password "admin" may do everything
#   rights=WORDS      the rights of that user, in the syntax of ACL SETUSER
#   socket=yes        a unix socket too
#   ipv6=yes          on ::1 too
#   replicas=N        the first server is a primary of N replicas
#   sentinels=N       N sentinels watch it by the name "locks": s1, s2 … They consider it down after
#                     down_after=MS (1000). A restarted server has the same role as at its first start
#   sentinel_password=TEXT   the password of the sentinels
#   nodes=N           N independent servers
#   cluster=N         a cluster of N masters, with replicas=N for each of them: the replicas of master 1 are N+1, 2N+1 …
#                     Slots are shared out evenly. Nodes suspect each other after node_timeout=MS (30000: never, on a
#                     busy machine). A replica takes over only if it is told to (CLUSTER FAILOVER), or with
#                     failover=auto. A restarted node has the role that it had last. Needs Redis 7.
#                     bus=cut: a test can cut nodes off from the others (fleet_isolate in tests/cluster)
#   aof=yes           appendonly, appendfsync always: a restart keeps everything; everysec: appendfsync everysec
#   maxclients=N, maxmemory=N
#   faketime=yes      the clock of server 1 is what FOLDER/faketime says ("+0", "+1h", "-90s", "+0 x1.5";
#                     libfaketime); all: the clock of each server
#   disk=FILE         loaded into each: tests/torture/disk.c, whose disk is full while FOLDER/NAME.full exists
#   conf=LINE         a line of redis.conf, for each server; may be given more than once
# Values: HOST PORT PORT2 … SOCKET SOCKET2 … HOST6 USER PASSWORD SENTINELS (as a client takes them) CLUSTER (its masters)
# shellcheck shell=sh disable=SC2034,SC2154 # the variables are servers.sh's

kind_programs='redis-server redis-cli timeout'
kind_keys='password user rights socket ipv6 replicas nodes aof maxclients maxmemory faketime conf'
kind_keys="$kind_keys disk sentinels down_after sentinel_password cluster node_timeout failover bus"
kind_patience_s=120

carriage_return=$(printf '\r')

# What a client of locks needs, and nothing that an operator does.
redis_rights='~* &* -@all +@read +@write -@dangerous +@scripting +@pubsub +@transaction +@connection'
redis_rights="$redis_rights +time +wait +info +role +client|id +client|setname +client|kill"

redis_count() {
    if is_cluster; then
        echo $(($(setting cluster) * (1 + $(setting replicas 0))))
    else
        echo $(($(setting nodes 1) + $(setting replicas 0)))
    fi
}

is_cluster() {
    [ "$(setting cluster 0)" -gt 0 ]
}

# A replica that finds no primary tries again after a second only. Of a cluster none is ready before all are there.
kind_in_turn() {
    ! is_cluster
}

kind_members() {
    count 1 "$(redis_count)"
    count 1 "$(setting sentinels 0)" s
}

is_sentinel() {
    case $1 in
    s*) ;;
    *) return 1 ;;
    esac
}

# What each says of itself, so that they need not find each other first.
sentinel_id() {
    printf '%040x' "$(server_port "$1")"
}

# redis_at_least MAJOR MINOR
redis_at_least() {
    redis_version=$(redis-server --version | sed -n 's/.* v=\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    # shellcheck disable=SC2086 # two words
    set -- "$1" "$2" $redis_version
    [ "${3:-0}" -gt "$1" ] || { [ "${3:-0}" -eq "$1" ] && [ "${4:-0}" -ge "$2" ]; }
}

kind_check() {
    if [ -n "$(setting faketime)" ] && [ -z "$(faketime_library)" ]; then
        echo 'libfaketime is not installed'
        return 1
    fi
    if [ -n "$(setting user)" ] && ! redis_at_least 6 0; then
        echo 'this Redis has no ACL users'
        return 1
    fi
    if [ "$(setting ipv6)" = yes ] &&
        ! grep -q '^00000000000000000000000000000001 ' /proc/net/if_inet6 2>/dev/null; then
        echo 'this host has no ::1'
        return 1
    fi
    if [ "$(setting bus)" = cut ] && ! command -v openssl >/dev/null; then
        echo 'openssl is not installed'
        return 1
    fi
    if is_cluster && ! redis_at_least 7 0; then
        echo 'this Redis has no cluster-port'
        return 1
    fi
    if [ "$(setting nodes 1)" -gt 1 ] && [ "$(setting replicas 0)" -gt 0 ]; then
        echo 'nodes and replicas exclude each other'
        return 1
    fi
}

redis_socket() {
    redis_path=$FOLDER/$1/redis.sock
    [ "${#redis_path}" -le 100 ] || {
        say "too long for a unix socket: $redis_path"
        return 1
    }
    echo "$redis_path"
}

# What a client that may do all authenticates with; empty where nothing is asked.
redis_admin_password() {
    if [ -n "$(setting user)" ]; then
        echo admin
    else
        setting password
    fi
}

redis_conf() {
    addresses=127.0.0.1
    [ "$(setting ipv6)" != yes ] || addresses='127.0.0.1 ::1'
    printf '%s\n' "port $(server_port "$1")" "bind $addresses" 'protected-mode yes' 'daemonize no' "dir \"$FOLDER/$1\"" \
        'logfile ""' 'save ""' 'repl-diskless-sync no' 'databases 16'
    [ "$(setting socket)" != yes ] || echo "unixsocket \"$(redis_socket "$1")\""
    case $(setting aof) in
    yes) printf 'appendonly yes\nappendfsync always\n' ;;
    everysec) printf 'appendonly yes\nappendfsync everysec\n' ;;
    esac
    [ -z "$(setting maxclients)" ] || echo "maxclients $(setting maxclients)"
    [ -z "$(setting maxmemory)" ] || echo "maxmemory $(setting maxmemory)"
    redis_conf_secrets
    if is_cluster; then
        cluster_conf "$1"
    elif [ "$(setting replicas 0)" -gt 0 ] && [ "$1" != 1 ]; then
        echo "replicaof 127.0.0.1 $(server_port 1)"
    fi
    settings conf
}

# What is not persisted is gone with a master; and a full copy does not wait for further replicas.
cluster_conf() {
    printf '%s\n' 'cluster-enabled yes' "cluster-port $(server_port "$1" bus)" 'cluster-config-file nodes.conf' \
        "cluster-node-timeout $(setting node_timeout 30000)" 'cluster-allow-replica-migration no' \
        'repl-diskless-sync yes' 'repl-diskless-sync-delay 0'
    [ "$(setting failover)" = auto ] || echo 'cluster-replica-no-failover yes'
    if [ "$(setting bus)" = cut ]; then
        for redis_file in cert key ca-cert; do
            echo "tls-$redis_file-file \"$FOLDER/bus.pem\""
        done
        echo 'enable-debug-command local'
    fi
}

# One file for both: nobody checks it.
redis_bus_pem() {
    [ -f "$FOLDER/bus.pem" ] || (umask 077 && cd "$FOLDER" &&
        openssl req -x509 -newkey rsa:2048 -nodes -days 7 -subj /CN=bus -keyout bus.key -out bus.crt 2>/dev/null &&
        cat bus.key bus.crt >bus.pem)
}

# What nodes say of themselves.
cluster_id() {
    printf '%040x' "$(server_port "$1")"
}

# What the node NAME knows: all of them, so that they need not find each other first. It writes this file from then on.
cluster_nodes() {
    masters=$(setting cluster)
    for member in $(kind_members); do
        master=$(((member - 1) % masters + 1)) flags=master of=- slots=''
        if [ "$member" -gt "$masters" ]; then
            flags=slave of=$(cluster_id "$master")
        else
            slots=" $((16384 * (member - 1) / masters))-$((16384 * member / masters - 1))"
        fi
        [ "$member" != "$1" ] || flags=myself,$flags
        echo "$(cluster_id "$member") 127.0.0.1:$(server_port "$member")@$(server_port "$member" bus)" \
            "$flags $of 0 0 $master connected$slots"
    done
    echo "vars currentEpoch $masters lastVoteEpoch 0"
}

redis_conf_secrets() {
    if [ -n "$(setting user)" ]; then
        rights=$(setting rights "$redis_rights") everything='~* &* +@all'
        if ! redis_at_least 6 2; then # no rights on channels
            rights=$(echo "$rights" | sed 's/&[^ ]*//g') everything='~* +@all'
        fi
        echo 'user default off'
        echo "user admin on >admin $everything"
        echo "user $(setting user) on >$(setting password) $rights"
        printf 'masteruser admin\nmasterauth admin\n'
    elif [ -n "$(setting password)" ]; then
        printf 'requirepass "%s"\nmasterauth "%s"\n' "$(setting password)" "$(setting password)"
    fi
}

# Written once: a sentinel keeps what it knows in it.
sentinel_conf() {
    redis_members=$(redis_count)
    cat <<CONF
port $(server_port "$1")
bind 127.0.0.1
daemonize no
dir "$FOLDER/$1"
logfile ""
sentinel myid $(sentinel_id "$1")
sentinel monitor locks 127.0.0.1 $(server_port 1) $(($(setting sentinels) / 2 + 1))
sentinel down-after-milliseconds locks $(setting down_after 1000)
sentinel failover-timeout locks 3000
sentinel parallel-syncs locks $redis_members
CONF
    for redis_member in $(count 2 "$redis_members"); do
        echo "sentinel known-replica locks 127.0.0.1 $(server_port "$redis_member")"
    done
    for redis_member in $(count 1 "$(setting sentinels)" s); do
        [ "$redis_member" = "$1" ] ||
            echo "sentinel known-sentinel locks 127.0.0.1 $(server_port "$redis_member") $(sentinel_id "$redis_member")"
    done
    [ -z "$(setting user)" ] || echo 'sentinel auth-user locks admin'
    [ -z "$(redis_admin_password)" ] || echo "sentinel auth-pass locks $(redis_admin_password)"
    [ -z "$(setting sentinel_password)" ] ||
        printf 'requirepass "%s"\nsentinel sentinel-pass "%s"\n' "$(setting sentinel_password)" "$(setting sentinel_password)"
}

kind_prepare() {
    if is_sentinel "$1"; then
        [ -f "$FOLDER/$1/sentinel.conf" ] || (umask 077 && sentinel_conf "$1" >"$FOLDER/$1/sentinel.conf")
        return
    fi
    if [ "$(setting socket)" = yes ]; then
        redis_socket "$1" >/dev/null || return 1
    fi
    [ -f "$FOLDER/faketime" ] || echo +0 >"$FOLDER/faketime"
    (umask 077 && redis_conf "$1" >"$FOLDER/$1/redis.conf")
    if is_cluster; then
        [ "$(setting bus)" != cut ] || redis_bus_pem || return 1
        if [ ! -f "$FOLDER/ready" ] || [ ! -f "$FOLDER/$1/nodes.conf" ]; then
            (cluster_nodes "$1" >"$FOLDER/$1/nodes.conf")
        fi
    fi
}

kind_run() {
    cd "$FOLDER/$1" || return
    ! is_sentinel "$1" || exec redis-server sentinel.conf --sentinel
    if [ "$(setting faketime)" = all ] || { [ "$1" = 1 ] && [ -n "$(setting faketime)" ]; }; then
        # libc too, for its malloc: jemalloc asks for the time before libfaketime can be asked
        exec env "LD_PRELOAD=$(faketime_library) libc.so.6" "FAKETIME_TIMESTAMP_FILE=$FOLDER/faketime" \
            FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 redis-server redis.conf
    fi
    if [ -n "$(setting disk)" ]; then
        exec env "LD_PRELOAD=$(setting disk)" "MORTISE_DISK_FULL=$FOLDER/$1.full" MORTISE_DISK_FORCED=yes \
            redis-server redis.conf
    fi
    exec redis-server redis.conf
}

kind_ask() {
    redis_port=$(server_port "$1") redis_user=$(setting user)
    REDISCLI_AUTH=$(redis_admin_password)
    ! is_sentinel "$1" || redis_user='' REDISCLI_AUTH=$(setting sentinel_password)
    shift
    [ -z "$REDISCLI_AUTH" ] || export REDISCLI_AUTH
    set -- -h 127.0.0.1 -p "$redis_port" "$@"
    [ -z "$redis_user" ] || set -- --user admin "$@"
    timeout -s KILL "${redis_patience:-30}" redis-cli "$@"
}

# redis_says NAME COMMAND…: sets `redis_said` to its answers, behind a newline each. One that does not answer is asked again
# soon.
redis_says() {
    redis_said=$newline$(
        redis_name=$1 redis_patience=5
        shift
        printf '%s\n' "$@" | kind_ask "$redis_name"
    )
}

# It was told in a line of its answers; \r ends the lines of some.
redis_told() {
    case $redis_said in
    *"$newline$1" | *"$newline$1$newline"* | *"$newline$1$carriage_return"*) ;;
    *) return 1 ;;
    esac
}

redis_follows() {
    redis_told role:master || redis_told master_link_status:up
}

kind_may_be_ready() {
    if is_sentinel "$1"; then
        log_says "$1" 'Sentinel ID is'
    elif is_cluster; then
        log_says "$1" 'Cluster state changed: ok'
    else
        log_says "$1" 'Ready to accept connections'
    fi
}

kind_ready() {
    if is_sentinel "$1"; then
        redis_says "$1" 'info server' && redis_told "process_id:$2"
    elif is_cluster; then
        redis_says "$1" 'info server' 'cluster info' 'info replication' && redis_told "process_id:$2" &&
            redis_told cluster_state:ok && redis_follows
    elif [ "$(setting replicas 0)" -gt 0 ] && [ "$1" != 1 ]; then
        redis_says "$1" 'info server' 'info replication' && redis_told "process_id:$2" && redis_follows
    else
        # still loading what it has kept: not yet
        redis_says "$1" 'info server' 'exists mortise:ready' && redis_told "process_id:$2" &&
            { redis_told 0 || redis_told 1; }
    fi
}

kind_values() {
    echo HOST=127.0.0.1
    ! is_cluster || echo "CLUSTER=$(setting cluster)"
    [ "$(setting ipv6)" != yes ] || echo HOST6=::1
    [ "$(setting sentinels 0)" -eq 0 ] || {
        printf SENTINELS
        separator='='
        for member in $(count 1 "$(setting sentinels)" s); do
            printf '%s127.0.0.1:%s' "$separator" "$(server_port "$member")"
            separator=,
        done
        echo
    }
    for member in $(count 1 "$(redis_count)"); do
        suffix=$(member_suffix "$member")
        echo "PORT$suffix=$(server_port "$member")"
        [ "$(setting socket)" != yes ] || echo "SOCKET$suffix=$(redis_socket "$member")"
    done
    [ -z "$(setting user)" ] || echo "USER=$(setting user)"
    [ -z "$(setting password)" ] || echo "PASSWORD=$(setting password)"
}
