#!/bin/sh
# `mortise doctor` with servers that take long to start: each finding comes with its cause, and is gone without it. doctor.sh has
# the rest.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"
. "$(dirname "$0")/doctor_common"

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

tests=${*:-mysql mysql_plain}
for test in $tests; do
    $test
done
end
