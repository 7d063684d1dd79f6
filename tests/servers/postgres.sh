# postgres.sh - private PostgreSQL servers, for servers.sh: a cluster in the directory, on a TCP port, with the role and the
# database `mortise`. Does not touch the system's clusters. If the caller is root, it runs as `postgres` or `nobody`,
# because PostgreSQL refuses to run as root.
#
# KEYs:
#   standby=yes      server 2 is a streaming, read-only copy of server 1
#   pooler=yes       server "pooler" is a pgbouncer in transaction mode in front of server 1: PORTpooler; its
#                    database `session` is the same in session mode
#   faketime=yes     the clock of server 1 is what FOLDER/faketime says ("+0", "+1h", "-90s"; libfaketime)
#   disk=FILE        loaded into server 1: tests/torture/disk.c, whose disk is full while FOLDER/1.full exists
#   wal=N            a segment of its log is N MB long (16)
#   conf=LINE        a line of postgresql.conf, for each server; may be given more than once
# Values: HOST PORT PORT2 PORTpooler. `ask` is psql as the superuser, on the database `mortise`.
# shellcheck shell=sh disable=SC2034,SC2154 # the variables are servers.sh's

# Debian keeps them out of $PATH, and has clients there that are a Perl program: it looks which cluster is meant, and costs six
# times as much as the client that it then starts. So the clients are those of the server's own folder, if it has some.
for postgres_bin in /usr/lib/postgresql/*/bin; do
    [ ! -x "$postgres_bin/postgres" ] || PATH=$PATH:$postgres_bin
done
postgres_clients=$(command -v postgres) || postgres_clients=''
postgres_clients=${postgres_clients%postgres}
[ -x "${postgres_clients}psql" ] || postgres_clients=''
kind_programs='postgres initdb psql pg_basebackup setpriv timeout ps'
kind_keys='standby pooler faketime disk wal conf'
kind_stop_signal=INT # fast: clients are not waited for
kind_end_signal=QUIT
kind_patience_s=120

kind_check() {
    if [ "$(setting faketime)" = yes ] && [ -z "$(faketime_library)" ]; then
        echo 'libfaketime is not installed'
        return 1
    fi
    if [ "$(setting pooler)" = yes ] && ! command -v pgbouncer >/dev/null; then
        echo 'pgbouncer is not installed'
        return 1
    fi
}

# A copy is made of a server that runs.
kind_in_turn() {
    true
}

kind_members() {
    echo 1
    [ "$(setting standby)" != yes ] || echo 2
    [ "$(setting pooler)" != yes ] || echo pooler
}

# postgres_as COMMAND…: as the user that the servers run as. Replaces the shell that it is called in.
postgres_as() {
    if [ "$(id -u)" -ne 0 ]; then
        exec "$@"
    fi
    exec setpriv "--reuid=$(postgres_user)" "--regid=$(id -g "$(postgres_user)")" --clear-groups "$@"
}

postgres_user() {
    if id postgres >/dev/null 2>&1; then echo postgres; else echo nobody; fi
}

# Its folder is its own; those above it, down from the temporary one, are to be passed through.
postgres_open_folder() {
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
    chown "$(postgres_user)" "$FOLDER/$1"
}

postgres_conf() {
    cat <<CONF
port = $(server_port "$1")
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 40
shared_buffers = 16MB
logging_collector = off
log_line_prefix = '%m [%p] '
CONF
    settings conf
}

postgres_hba='local all all trust
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust'

# A cluster takes two seconds to make, and a suite needs many. So the first one is made beside the build and copied. Its
# name has all that it depends on; this file says how it is made.
postgres_make() {
    if [ -z "${MORTISE_BUILD_DIR:-}" ] || [ ! -w "$MORTISE_BUILD_DIR" ]; then
        postgres_make_new "$1"
        return
    fi
    template=$MORTISE_BUILD_DIR/tests/postgres-$(postgres --version | cut -d" " -f3)-wal$(setting wal 16)
    template=$template-$(postgres_user)-$(postgres_recipe)
    mkdir -p "$MORTISE_BUILD_DIR/tests"
    (
        flock 8
        if [ ! -d "$template" ]; then
            postgres_make_new "$1" || exit 1
            rm -rf -- "$template.new"
            cp -a --sparse=always "$1" "$template.new" && mv -- "$template.new" "$template"
        fi
    ) 8>"$template.lock" || return 1
    [ -f "$1/PG_VERSION" ] || cp -a --reflink=auto "$template/." "$1"
}

# A checksum of this file.
postgres_recipe() {
    cksum "$here/servers/postgres.sh" | cut -d" " -f1
}

postgres_make_new() {
    (postgres_as initdb -D "$1" -U postgres -A trust --no-locale -E UTF8 --no-sync \
        "--wal-segsize=$(setting wal 16)") || return 1
    printf '%s\n' "$postgres_hba" >"$1/pg_hba.conf"
    printf '%s\n' 'CREATE ROLE mortise LOGIN;' 'CREATE DATABASE mortise OWNER mortise;' |
        (postgres_as postgres --single -D "$1" postgres) || return 1
    # What nobody uses need not be copied: half of it.
    printf '%s\n' "UPDATE pg_database SET datistemplate = false WHERE datname = 'template0';" \
        'DROP DATABASE template0;' 'DROP DATABASE postgres;' | (postgres_as postgres --single -D "$1" mortise)
}

postgres_copy() {
    (postgres_as "${postgres_clients}pg_basebackup" -D "$1" -h 127.0.0.1 -p "$(server_port 1)" -U postgres \
        -R -X stream -c fast --no-sync)
}

pooler_conf() {
    cat <<CONF
[databases]
mortise = host=127.0.0.1 port=$(server_port 1) dbname=mortise
session = host=127.0.0.1 port=$(server_port 1) dbname=mortise pool_mode=session
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $(server_port pooler)
unix_socket_dir =
auth_type = trust
auth_file = $FOLDER/pooler/users
admin_users = postgres
pool_mode = transaction
default_pool_size = 5
CONF
}

kind_prepare() {
    postgres_open_folder "$1"
    if [ "$1" = pooler ]; then
        pooler_conf >"$FOLDER/pooler/pgbouncer.ini"
        printf '"mortise" ""\n"postgres" ""\n' >"$FOLDER/pooler/users"
        return 0
    fi
    data=$FOLDER/$1/data
    if [ ! -f "$data/PG_VERSION" ]; then
        if [ "$1" = 1 ]; then postgres_make "$data"; else postgres_copy "$data"; fi \
            >"$FOLDER/$1/made.log" 2>&1 || {
            cat "$FOLDER/$1/made.log" >&2
            return 1
        }
        cp "$data/postgresql.conf" "$FOLDER/$1/postgresql.conf.made"
    fi
    rm -f -- "$data/postmaster.pid" # it does not run: a pid that nobody has reaped would keep it from starting
    { cat "$FOLDER/$1/postgresql.conf.made" && postgres_conf "$1"; } >"$data/postgresql.conf"
    [ "$1" != 1 ] || [ -f "$FOLDER/faketime" ] || echo +0 >"$FOLDER/faketime"
}

kind_run() {
    if [ "$1" = pooler ]; then
        postgres_as pgbouncer "$FOLDER/pooler/pgbouncer.ini"
    elif [ "$1" = 1 ] && [ "$(setting faketime)" = yes ]; then
        postgres_as env "LD_PRELOAD=$(faketime_library)" "FAKETIME_TIMESTAMP_FILE=$FOLDER/faketime" \
            FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 postgres -D "$FOLDER/1/data"
    elif [ "$1" = 1 ] && [ -n "$(setting disk)" ]; then
        install -m 755 "$(setting disk)" "$FOLDER/disk.so" # where the server's user may read it
        postgres_as env "LD_PRELOAD=$FOLDER/disk.so" "MORTISE_DISK_FULL=$FOLDER/1.full" postgres -D "$FOLDER/1/data"
    else
        postgres_as postgres -D "$FOLDER/$1/data"
    fi
}

# The server, and a process for each of its connections and duties.
kind_pids() {
    echo "$2"
    [ "$1" = pooler ] || ps -o pid= --ppid "$2"
}

kind_ask() {
    ask_port=$(server_port "$1")
    shift
    timeout -s KILL 90 "${postgres_clients}psql" -X -q -At -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$ask_port" \
        -U postgres -d mortise "$@"
}

kind_may_be_ready() {
    if [ "$1" = pooler ]; then log_says "$1" 'process up'; else log_says "$1" 'ready to accept'; fi
}

kind_ready() {
    if [ "$1" = pooler ]; then
        timeout 5 "${postgres_clients}psql" -X -At -h 127.0.0.1 -p "$(server_port pooler)" -U mortise -d mortise -c 'SELECT 1'
    else
        timeout 5 "${postgres_clients}psql" -X -At -h 127.0.0.1 -p "$(server_port "$1")" -U postgres -d mortise \
            -c 'SHOW data_directory' | grep -qxF "$FOLDER/$1/data"
    fi
}

kind_values() {
    echo HOST=127.0.0.1
    for member in $(kind_members); do
        echo "PORT$(member_suffix "$member")=$(server_port "$member")"
    done
}
