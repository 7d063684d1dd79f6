#!/bin/sh
# `mortise doctor` with servers that take long to start: each finding comes with its cause, and is gone without it. doctor.sh has
# the rest.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"
. "$(dirname "$0")/doctor_common"

postgres() {
    what "postgres"
    start postgres postgres standby=yes pooler=yes faketime=yes || return 0
    local base="postgres://mortise@127.0.0.1"
    WHERE="$base:$PORT/mortise?sslmode=disable"
    soon "a standby that nobody waits for" '^settings +risk +it has standbys, but synchronous_standby_names is empty'
    doctor "and nothing else" 1 '!several' '!pooler' '!clocks of'
    ask postgres -c "ALTER SYSTEM SET synchronous_standby_names = '*'" -c 'SELECT pg_reload_conf()'
    soon "a standby that commits wait for" '!risk'
    healthy "the same"
    ask postgres -c "ALTER ROLE mortise SET synchronous_commit = 'local'"
    doctor "commits that do not wait" 1 '^settings +risk +synchronous_commit is local' '!standbys'
    ask postgres -c 'ALTER ROLE mortise RESET synchronous_commit'
    healthy "commits that wait"
    # shellcheck disable=SC2154 # by start
    WHERE="$base:$PORTpooler/mortise?sslmode=disable"
    doctor "a pooler" 0 '^settings +note +the connection is through a pooler that shares' '!pooler = no' '!risk'
    WHERE="$base:$PORTpooler/session?sslmode=disable&pooler=no"
    doctor "a pooler in session mode, trusted" 0 '^settings +note +the connection is through a pooler, and pooler = no' '!shares'
    WHERE="$base:$PORT/mortise?sslmode=disable&pooler=no"
    healthy "no pooler"
    echo +90s >"$DIR.postgres/faketime"
    soon "another clock" '^settings +note +the clocks of the server and of this host differ'
    echo +0 >"$DIR.postgres/faketime"
    soon "the same clock" '!clocks of'
}

migrate() {
    what "a migration, both of whose sides have findings"
    start left redis aof=everysec && start right redis conf='maxmemory-policy allkeys-lru' || return 0
    local left right
    left=$(server values left | sed -n 's/^PORT=//p') right=$(server values right | sed -n 's/^PORT=//p')
    cat >"$DIR/migrate.conf" <<CONF
[mortise]
driver = migrate
[migrate]
from = redis:left
to = redis:right
phase = both
[redis:left]
servers = 127.0.0.1:$left
[redis:right]
servers = 127.0.0.1:$right
CONF
    WHERE=$DIR/migrate.conf
    doctor "both sides" 0 "^server +ok +phase both: from .*127.0.0.1:$left.*; to .*127.0.0.1:${right}[^|]*$" \
        '^settings +note +appendfsync is everysec' '^settings +note +maxmemory-policy is allkeys-lru' '!risk'
    # what tells one run of a server from the next must not depend on its settings
    "$BIN" -C "$WHERE" migrate status >"$DIR/out" 2>&1
    has_line "its status" "$DIR/out" "127.0.0.1:$left, run"
    no "its status has no findings" holds "$DIR/out" 'note:|appendfsync'
}

mysql() {
    what "mysql"
    start mysql mysql replica=yes faketime=yes || return 0
    WHERE="mysql://mortise@127.0.0.1:$PORT/mortise"
    # A replica that is connected, without and with semi-synchronous replication.
    soon "a replica" '^settings +risk +1 replicas, and commits do not wait'
    doctor "a replica" 1 "!server's clock" '!_trx_commit' '!sync_binlog' '!doublewrite'
    ask mysql -e 'SET GLOBAL rpl_semi_sync_master_enabled = ON'
    ask_second -e 'SET GLOBAL rpl_semi_sync_slave_enabled = ON; STOP SLAVE IO_THREAD; START SLAVE IO_THREAD'
    soon "semi-synchronous" '^settings +note +rpl_semi_sync_master_timeout is 10000 ms'
    ask mysql -e 'SET GLOBAL rpl_semi_sync_master_timeout = 86400000'
    healthy "semi-synchronous, with a long timeout"
    # What the driver refuses when it connects, if it may not be durable.
    ask mysql -e 'SET GLOBAL innodb_flush_log_at_trx_commit = 2'
    doctor "a server that forgets" 78 '^server +wrong .*innodb_flush_log_at_trx_commit'
    WHERE="$WHERE?durable=no"
    doctor "the same, accepted" 1 '^settings +risk +innodb_flush_log_at_trx_commit is 2' '^promises +note +not durable'
    ask mysql -e 'SET GLOBAL innodb_flush_log_at_trx_commit = 1; SET GLOBAL sync_binlog = 0'
    doctor "a log that forgets" 1 '^settings +risk +sync_binlog is 0' '!_trx_commit'
    ask mysql -e 'SET GLOBAL sync_binlog = 1'
    doctor "neither" 0 '^settings +ok' '!risk'
    echo +1h >"$DIR.mysql/faketime"
    doctor "another clock" 0 "^settings +note +the server's clock is (3599|3600|3601) s ahead"
    echo +0 >"$DIR.mysql/faketime"
    healthy "the same clock"
    WHERE="mysql://mortise@127.0.0.1:$PORT2/mortise"
    doctor "the replica itself" 69 '^server +wrong .*read-only'
}
ask_second() {
    timeout 60 mariadb --no-defaults --protocol=tcp -h 127.0.0.1 -P "$PORT2" -u root "$@" || wrong "$*"
}

mysql_plain() {
    what "mysql without a log"
    start plain mysql conf=innodb_doublewrite=0 || return 0
    WHERE="mysql://mortise@127.0.0.1:$PORT/mortise"
    doctor "no doublewrite" 1 '^settings +risk +innodb_doublewrite is off' '!sync_binlog' '!replica'
}

sentinel() {
    what "redis with sentinels"
    start sentinels redis replicas=1 sentinels=3 aof=yes || return 0
    WHERE="redis://?sentinel=locks@$SENTINELS"
    soon "a replica" '^settings +risk +1 replicas, but min_replicas is 0'
    WHERE="redis://?sentinel=locks@${SENTINELS%%,*}&min_replicas=1"
    doctor "one sentinel" 0 '^settings +note +`sentinel` names 1 of the sentinels' '!risk'
    WHERE="redis://?sentinel=locks@$SENTINELS&min_replicas=1"
    healthy "all sentinels"
    server kill sentinels only=2
    soon "the replica is gone" '^settings +risk +0 replicas, but min_replicas is 1'
    WHERE="redis://?sentinel=locks@$SENTINELS"
    doctor "nobody to take over" 0 '^settings +note +no replica'
}

cluster() {
    what "a redis cluster"
    start cluster redis cluster=3 replicas=1 aof=yes node_timeout=15000 conf='cluster-require-full-coverage no' || return 0
    WHERE="redis://127.0.0.1:$PORT?cluster=yes"
    soon "replicas" '^settings +risk +127.0.0.1:[0-9]+: 1 replicas, but min_replicas is 0'
    same "once, not for each master" 1 "$(grep -c 'min_replicas is 0' "$DIR/out")"
    WHERE="$WHERE&min_replicas=1"
    healthy "as many as min_replicas"
    ask cluster CONFIG SET cluster-require-full-coverage yes
    doctor "full coverage" 1 "^settings +risk +127.0.0.1:$PORT: cluster-require-full-coverage is yes"
    ask cluster CONFIG SET cluster-require-full-coverage no
    ask cluster CONFIG SET cluster-node-timeout 30000
    doctor "a slow failover" 0 "^settings +note +127.0.0.1:$PORT: cluster-node-timeout is 30000 ms" '!risk'
    ask cluster CONFIG SET cluster-node-timeout 15000
    # of one master only: every one of them is asked
    redis-cli -p "$PORT2" CONFIG SET appendfsync everysec >/dev/null
    redis-cli -p "$PORT3" CONFIG SET maxmemory-policy allkeys-lfu >/dev/null
    doctor "another master" 0 "^settings +note +127.0.0.1:$PORT2: appendfsync is everysec" \
        "^settings +note +127.0.0.1:$PORT3: maxmemory-policy is allkeys-lfu" '!risk'
    redis-cli -p "$PORT2" CONFIG SET appendfsync always >/dev/null
    redis-cli -p "$PORT3" CONFIG SET maxmemory-policy noeviction >/dev/null
    healthy "all masters"
    server kill cluster only=5
    soon "a master without its replica" "^settings +risk +127.0.0.1:$PORT2: 0 replicas, but min_replicas is 1"
    WHERE="redis://127.0.0.1:$PORT?cluster=yes"
    soon "likewise" "^settings +note +127.0.0.1:$PORT2: no replica"
}

redlock() {
    what "redlock"
    start redlock redis nodes=4 aof=yes faketime=yes || return 0
    local nodes="127.0.0.1:$PORT,127.0.0.1:$PORT2,127.0.0.1:$PORT3"
    WHERE="redlock://$nodes?node_persistent=yes"
    healthy "three nodes that keep what they say"
    redis-cli -p "$PORT2" CONFIG SET appendfsync everysec >/dev/null
    doctor "appendfsync" 1 "^settings +risk +127.0.0.1:$PORT2: appendfsync is everysec, but node_persistent"
    redis-cli -p "$PORT2" CONFIG SET appendonly no >/dev/null
    redis-cli -p "$PORT2" CONFIG SET appendfsync always >/dev/null
    doctor "no AOF" 1 "^settings +risk +127.0.0.1:$PORT2: it keeps no AOF, but node_persistent" '!appendfsync'
    WHERE="redlock://$nodes"
    doctor "without node_persistent" 0 '^settings +ok' '!AOF'
    redis-cli -p "$PORT3" CONFIG SET maxmemory-policy allkeys-lru >/dev/null
    doctor "eviction without a limit" 0 "^settings +note +127.0.0.1:$PORT3: maxmemory-policy is allkeys-lru" '!risk'
    redis-cli -p "$PORT3" CONFIG SET maxmemory 100mb >/dev/null
    doctor "eviction" 1 "^settings +risk +127.0.0.1:$PORT3: maxmemory-policy is allkeys-lru"
    redis-cli -p "$PORT3" CONFIG SET maxmemory-policy noeviction >/dev/null
    echo +90s >"$DIR.redlock/faketime"
    doctor "a clock" 0 "^settings +note +127.0.0.1:$PORT: the node's clock is (89|90|91) s ahead"
    echo +0 >"$DIR.redlock/faketime"
    healthy "all of that is mended"
    redis-cli -p "$PORT" ACL SETUSER blind on '>pw' '~*' '&*' +@all -info -config >/dev/null
    redis-cli -p "$PORT2" ACL SETUSER blind on '>pw' '~*' '&*' +@all -info -config >/dev/null
    redis-cli -p "$PORT3" ACL SETUSER blind on '>pw' '~*' '&*' +@all -info -config >/dev/null
    WHERE="redlock://blind:pw@$nodes"
    doctor "a user without INFO" 0 '^settings +note +this user may not run INFO'
    WHERE="redlock://127.0.0.1:$PORT,127.0.0.1:$PORT2"
    doctor "too few nodes" 78 '^config +wrong'
    WHERE="redlock://127.0.0.1:$PORT,localhost:$PORT,127.0.0.1:$PORT2"
    doctor "a node that is named twice" 1 '^settings +risk +(localhost|127.0.0.1):[0-9]+ is the same server' \
        '^settings +risk +2 of 3 nodes answer'
    redis-cli -p "$PORT4" REPLICAOF 127.0.0.1 "$PORT" >/dev/null
    WHERE="redlock://$nodes"
    soon "a node with a replica" "^settings +risk +127.0.0.1:$PORT: the node has replicas"
    redis-cli -p "$PORT4" REPLICAOF NO ONE >/dev/null
    soon "without" '!has replicas'
}

# alarm ACTIVATE|DEACTIVATE NAME: of all members, by etcd's gateway
alarm() {
    python3 - "$PORT" "$@" <<'PY' || wrong "alarm $*"
import json, sys, urllib.request
url = "http://127.0.0.1:%s/v3/maintenance/" % sys.argv[1]
def ask(path, **words):
    return json.load(urllib.request.urlopen(url + path, json.dumps(words).encode(), 30))
ask("alarm", action=sys.argv[2], memberID=ask("status")["header"]["member_id"], alarm=sys.argv[3])
PY
}

etcd() {
    what "etcd"
    start etcd etcd || return 0
    WHERE="etcd://127.0.0.1:$PORT"
    doctor "one member" 0 '^settings +note +the cluster has one member' '!alarm' '!endpoints'
    alarm ACTIVATE NOSPACE
    soon "no space" '^settings +risk +the alarm NOSPACE is set.*if the leader changes'
    alarm DEACTIVATE NOSPACE
    soon "space again" '!the alarm'
    alarm ACTIVATE CORRUPT
    soon "a corrupt member" '^settings +risk +the alarm CORRUPT is set'
    alarm DEACTIVATE CORRUPT
    soon "none" '!the alarm'
    server end etcd
    start pair etcd nodes=2 || return 0
    WHERE="etcd://$SERVERS"
    doctor "two members" 0 '^settings +note +the cluster has 2 voting members, and bears the failure of 0 of them, as with 1;' '!one member' '!endpoints'
    server end pair
    start three etcd nodes=3 || return 0
    WHERE="etcd://$SERVERS"
    healthy "three members"
    WHERE="etcd://127.0.0.1:$PORT2"
    doctor "one of them" 0 '^settings +note +`endpoints` names one of 3 members'
    server end three
    start user etcd user=app password=word rights=mortise/ || return 0
    WHERE="etcd://app:word@127.0.0.1:$PORT"
    doctor "a user with rights on locks only" 0 '^server +ok' '!risk'
}

zookeeper() {
    what "zookeeper"
    start zookeeper zookeeper tick=500 clock="$MORTISE_BUILD_DIR/tests/torture/libclock.so" || return 0
    WHERE="zookeeper://127.0.0.1:$PORT?session_timeout=5s"
    doctor "one server" 0 '^settings +note +the ensemble has one server' '!grant' "!leader's clock" '!`servers`'
    WHERE="zookeeper://127.0.0.1:$PORT"
    doctor "a shorter session" 1 '^settings +risk +the servers grant a session of 10000 ms, not of 30000'
    WHERE="zookeeper://127.0.0.1:$PORT?session_timeout=600ms&tick=500ms"
    doctor "a longer session" 0 '^settings +note +the servers grant a session of 1000 ms, not of 600'
    WHERE="zookeeper://127.0.0.1:$PORT?session_timeout=5s"
    echo +90 >"$DIR.zookeeper/clock"
    soon "another clock" "^settings +note +the leader's clock is (89|90|91) s ahead"
    echo +0 >"$DIR.zookeeper/clock"
    soon "the same clock" "!leader's clock"
    server end zookeeper
    start even zookeeper nodes=2 tick=2000 || return 0
    WHERE="zookeeper://$SERVERS"
    doctor "two servers" 0 '^settings +note +the ensemble has 2 voting servers, and bears the failure of 0 of them, as with 1;' '!one server'
    server end even
    start ensemble zookeeper nodes=3 tick=2000 || return 0
    WHERE="zookeeper://$SERVERS"
    healthy "three servers"
    WHERE="zookeeper://127.0.0.1:$PORT"
    doctor "one of them" 0 '^settings +note +`servers` names one of 3 servers' '!risk'
}

tests=${*:-postgres migrate mysql mysql_plain sentinel cluster redlock etcd zookeeper}
for test in $tests; do
    $test
done
end
