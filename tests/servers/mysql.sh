# mysql.sh - private MariaDB (or MySQL-compatible) servers, for servers.sh: a data directory each, on a TCP port of the
# loopback interface, with the user and the database `mortise`. Does not touch the system's server. If the caller is root, it
# runs as `mysql` or `nobody`, because it refuses to run as root.
#
# KEYs:
#   replica=yes      server 2 is a replica of server 1, and read-only
#   tls=yes          with a certificate for the name `localhost`, by a CA of its own: CA is the file
#   password=WORD    of the user `mortise`
#   faketime=yes     the clock of server 1 is what FOLDER/faketime says ("+0", "+1h", "-90s"; libfaketime)
#   disk=FILE        loaded into server 1: tests/torture/disk.c, whose disk is full while FOLDER/1.full exists
#   conf=LINE        a line of [mysqld], for each server; may be given more than once
# Values: HOST PORT PORT2 SOCKET CA. `ask` is the client `mariadb` as the superuser, on the database `mortise`.
# shellcheck shell=sh disable=SC2034,SC2154 # the variables are servers.sh's

PATH=$PATH:/usr/sbin # Debian keeps it there
kind_programs='mariadbd mariadb-install-db mariadb setpriv timeout'
kind_keys='replica tls password faketime disk conf'
kind_stop_signal=TERM
kind_end_signal=KILL
kind_patience_s=120

kind_check() {
    if [ "$(setting faketime)" = yes ] && [ -z "$(faketime_library)" ]; then
        echo 'libfaketime is not installed'
        return 1
    fi
    if [ "$(setting tls)" = yes ] && ! command -v openssl >/dev/null; then
        echo 'openssl is not installed'
        return 1
    fi
}

# A replica is told of a server that runs.
kind_in_turn() {
    true
}

kind_members() {
    echo 1
    [ "$(setting replica)" != yes ] || echo 2
}

mysql_user() {
    if id mysql >/dev/null 2>&1; then echo mysql; else echo nobody; fi
}

# mysql_as COMMAND…: as the user that the servers run as. Replaces the shell that it is called in.
mysql_as() {
    if [ "$(id -u)" -ne 0 ]; then
        exec "$@"
    fi
    exec setpriv "--reuid=$(mysql_user)" "--regid=$(id -g "$(mysql_user)")" --clear-groups "$@"
}

# Its folder is its own; those above it, down from the temporary one, are to be passed through.
mysql_open_folder() {
    [ "$(id -u)" -eq 0 ] || return 0
    above=$FOLDER
    while [ "$above" != / ]; do
        chmod a+x "$above"
        above=$(dirname -- "$above")
        [ -O "$above" ] || break
        case $above in
        /tmp | /var | /var/tmp | /home | /root) break ;;
        esac
    done
    chown "$(mysql_user)" "$FOLDER/$1"
}

mysql_conf() {
    cat <<CONF
[mysqld]
port = $(server_port "$1")
bind-address = 127.0.0.1
datadir = $FOLDER/$1/data
socket = $FOLDER/$1/s
pid-file = $FOLDER/$1/data/pid
tmpdir = $FOLDER/$1
skip-name-resolve
character-set-server = utf8mb4
max_connections = 60
innodb_buffer_pool_size = 16M
innodb_log_file_size = 8M
innodb_log_buffer_size = 2M
innodb_fast_shutdown = 1
innodb_stats_persistent = 0
key_buffer_size = 128K
aria_pagecache_buffer_size = 256K
performance_schema = off
table_open_cache = 64
server_id = $1
CONF
    if [ "$(setting replica)" = yes ]; then
        printf '%s\n' 'log_bin = binlog' 'sync_binlog = 1' "relay_log = relay" 'log_slave_updates = on'
        [ "$1" = 1 ] || echo 'read_only = on'
    fi
    if [ "$(setting tls)" = yes ]; then
        printf '%s\n' "ssl_ca = $FOLDER/tls/ca.pem" "ssl_cert = $FOLDER/tls/cert.pem" "ssl_key = $FOLDER/tls/key.pem"
    fi
    settings conf
}

# A data directory takes seconds to make, and a suite needs many. So the first one is made beside the build and copied. Its
# name has all that it depends on; this file says how it is made.
mysql_make() {
    if [ -z "${MORTISE_BUILD_DIR:-}" ] || [ ! -w "$MORTISE_BUILD_DIR" ]; then
        mysql_make_new "$1"
        return
    fi
    template=$MORTISE_BUILD_DIR/tests/mysql-$(mariadbd --version | cksum | cut -d" " -f1)
    template=$template-$(mysql_user)-$(cksum "$here/servers/mysql.sh" | cut -d" " -f1)
    mkdir -p "$MORTISE_BUILD_DIR/tests"
    (
        flock 8
        if [ ! -d "$template" ]; then
            mysql_make_new "$1" || exit 1
            rm -rf -- "$template.new"
            cp -a --reflink=auto "$1" "$template.new" && mv -- "$template.new" "$template"
        fi
    ) 8>"$template.lock" || return 1
    [ -d "$1/mysql" ] || cp -a --reflink=auto "$template/." "$1"
}

mysql_accounts() {
    cat <<'SQL'
FLUSH PRIVILEGES;
CREATE DATABASE mortise;
DROP USER IF EXISTS ''@'localhost';
CREATE USER mortise@'%';
GRANT ALL ON mortise.* TO mortise@'%';
SQL
}

mysql_make_new() {
    mkdir -p "$1" && { [ "$(id -u)" -ne 0 ] || chown "$(mysql_user)" "$1"; }
    mysql_accounts >"$FOLDER/accounts.sql"
    (mysql_as mariadb-install-db --no-defaults "--datadir=$1" --auth-root-authentication-method=normal \
        --skip-test-db --innodb-log-file-size=8M "--tmpdir=$1" "--extra-file=$FOLDER/accounts.sql")
}

mysql_certificates() {
    [ "$(setting tls)" = yes ] && [ ! -f "$FOLDER/tls/cert.pem" ] || return 0
    mkdir -p "$FOLDER/tls"
    (
        cd "$FOLDER/tls" || exit
        openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=test-ca -keyout ca.key -out ca.pem
        openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out cert.csr
        echo 'subjectAltName = DNS:localhost' >ext
        openssl x509 -req -in cert.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile ext -out cert.pem
        chmod a+r ./*.pem
    ) >"$FOLDER/tls.log" 2>&1
    chmod a+x "$FOLDER/tls"
}

kind_prepare() {
    mysql_open_folder "$1"
    mysql_certificates
    data=$FOLDER/$1/data
    if [ ! -d "$data/mysql" ]; then
        mysql_make "$data" >"$FOLDER/$1/made.log" 2>&1 || {
            cat "$FOLDER/$1/made.log" >&2
            return 1
        }
    fi
    mysql_conf "$1" >"$FOLDER/$1/my.cnf"
    chmod a+r "$FOLDER/$1/my.cnf"
    [ "$1" != 1 ] || [ -f "$FOLDER/faketime" ] || echo +0 >"$FOLDER/faketime"
}

kind_run() {
    if [ "$1" = 1 ] && [ "$(setting faketime)" = yes ]; then
        mysql_as env "LD_PRELOAD=$(faketime_library)" "FAKETIME_TIMESTAMP_FILE=$FOLDER/faketime" \
            FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 mariadbd "--defaults-file=$FOLDER/1/my.cnf"
    elif [ "$1" = 1 ] && [ -n "$(setting disk)" ]; then
        install -m 755 "$(setting disk)" "$FOLDER/disk.so" # where the server's user may read it
        mysql_as env "LD_PRELOAD=$FOLDER/disk.so" "MORTISE_DISK_FULL=$FOLDER/1.full" \
            mariadbd "--defaults-file=$FOLDER/1/my.cnf"
    else
        mysql_as mariadbd "--defaults-file=$FOLDER/$1/my.cnf"
    fi
}

kind_ask() {
    ask_port=$(server_port "$1")
    shift
    timeout -s KILL 90 mariadb --no-defaults --protocol=tcp -h 127.0.0.1 -P "$ask_port" -u root -N -B -r mortise "$@"
}

# A new one is given what depends on the settings.
mysql_first() {
    [ ! -f "$FOLDER/$1/first" ] || return 0
    [ -z "$(setting password)" ] ||
        kind_ask "$1" -e "ALTER USER mortise@'%' IDENTIFIED BY '$(setting password)'" || return 1
    if [ "$1" = 1 ] && [ "$(setting replica)" = yes ]; then
        kind_ask 1 -e "RESET MASTER" || return 1
    elif [ "$1" = 2 ]; then
        kind_ask 2 -e "RESET MASTER; CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=$(server_port 1),
            MASTER_USER='root', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1; START SLAVE" || return 1
    fi
    touch "$FOLDER/$1/first"
}

kind_may_be_ready() {
    log_says "$1" 'ready for connections'
}

kind_ready() {
    timeout 5 mariadb --no-defaults --protocol=tcp -h 127.0.0.1 -P "$(server_port "$1")" -u root -N -B \
        -e 'SELECT @@datadir' 2>/dev/null | grep -qxF "$FOLDER/$1/data/" && mysql_first "$1" >/dev/null
}

kind_values() {
    echo HOST=127.0.0.1
    for member in $(kind_members); do
        echo "PORT$(member_suffix "$member")=$(server_port "$member")"
    done
    echo "SOCKET=$FOLDER/1/s"
    [ "$(setting tls)" != yes ] || echo "CA=$FOLDER/tls/ca.pem"
}
