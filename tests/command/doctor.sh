#!/bin/sh
# `mortise doctor`: what the settings of the server and of this host mean for the promises. A finding comes with its setting, and
# is gone without it.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"
. "$(dirname "$0")/doctor_common"

what "sqlite"
WHERE=sqlite:$DIR/doctor.db
if [ "$(stat -f -c %T "$DIR")" = tmpfs ]; then
    printf 'not checked: a file on a disk\n'
else
    healthy "a file on a disk"
fi
doctor "a file" 0 '^server +ok +SQLite' '^witness +' '^clock +(ok|note)' '!risk' '!wrong'
if [ "$(stat -f -c %T /dev/shm)" = tmpfs ] && shm=$(mktemp -d /dev/shm/mortise-doctor.XXXXXX); then
    "$BIN" -C "sqlite:$shm/doctor.db" doctor >"$DIR/out"
    has_line "a file in memory" "$DIR/out" '^settings +note +the file is in memory'
    rm -rf "$shm"
fi
# A container's boot id is a mount. In a namespace of its own, so does this process see one.
if unshare -rm true 2>/dev/null; then
    cat /proc/sys/kernel/random/uuid >"$DIR/boot"
    # shellcheck disable=SC2016 # for the shell in the namespace
    unshare -rm sh -c 'mount --bind "$1" /proc/sys/kernel/random/boot_id && "$2" -C "sqlite:$3" doctor' \
        sh "$DIR/boot" "$BIN" "$DIR/container.db" >"$DIR/out" 2>&1
    has_line "a boot id of its own" "$DIR/out" '^settings +note +this process sees a boot id of its own'
else
    printf 'not checked: a boot id of its own (no namespaces)\n'
fi
"$BIN" -C "$WHERE?witness=off" doctor >"$DIR/out"
has_line "without a witness" "$DIR/out" '^witness +note +off: .*: witness = off$'
mkfifo "$DIR/pipe"
printf '[mortise]\ndriver = sqlite\n[sqlite]\npath = %s\n' "$DIR/doctor.db" >"$DIR/pipe" &
"$BIN" -C "$DIR/pipe" doctor >"$DIR/out"
has_line "a config that only this process could read" "$DIR/out" '^witness +note +off: .*: another process cannot open'
"$BIN" -C "$WHERE" doctor --json >"$DIR/out"
if command -v python3 >/dev/null; then
    yes "--json" python3 -c 'import json,sys
d=json.load(open(sys.argv[1]))
assert all(set(x)=={"what","level","ok","detail"} and x["ok"]==(x["level"] in ("ok","note")) for x in d)
assert {"config","driver","server","witness","clock"} <= {x["what"] for x in d}' "$DIR/out"
fi
"$BIN" -C nodriver:x doctor >"$DIR/out" 2>&1
same "a wrong config" 78 $?
"$BIN" -C "$WHERE" doctor x >"$DIR/out" 2>&1
same "usage" 64 $?

# A server at the default port, in a network of its own, and two configs for it.
what "a section that is not there"
printf '[mortise]\ndriver = redis\n[redis-prod]\nservers = db.example:6379\n' >"$DIR/lacks.conf"
printf '[mortise]\ndriver = redis\n[redis]\n' >"$DIR/has.conf"
in_own_network() {
    # shellcheck disable=SC2016 # for the shell in the namespace
    unshare -rn sh -c 'ip link set lo up || exit
        redis-server --save "" --dir "$1" >"$1/redis.out" 2>&1 &
        trap "kill $!; wait" EXIT
        tries=0
        until redis-cli ping >/dev/null 2>&1; do
            kill -0 $! && [ $((tries += 1)) -le 600 ] || exit 1
            sleep 0.05
        done
        "$2" -C "$1/lacks.conf" doctor >"$1/lacks.out"
        "$2" -C "$1/has.conf" doctor >"$1/has.out"
        true' sh "$DIR" "$BIN"
}
if ! command -v redis-server >/dev/null || ! command -v redis-cli >/dev/null || ! command -v ip >/dev/null; then
    if [ "${MORTISE_REQUIRE_ALL:-}" = 1 ]; then
        wrong "no redis-server, redis-cli or ip"
    else
        printf 'not checked: a section that is not there (no redis-server, redis-cli or ip)\n'
    fi
elif ! unshare -rn ip link set lo up 2>/dev/null; then
    printf 'not checked: a section that is not there (no namespaces)\n'
elif in_own_network; then
    has_line "a note" "$DIR/lacks.out" '^settings +note +the config has no section \[redis\], .* nothing reads \[redis-prod\], which has "servers"; '
    has_line "with the section the server answers" "$DIR/has.out" '^server +ok'
    no "and there is no note" holds "$DIR/has.out" 'section \[redis-prod\]'
else
    wrong "a server at the default port: $(cat "$DIR/redis.out")"
fi

what "redis"
if start redis redis replicas=1; then
    WHERE=redis://127.0.0.1:$PORT
    ask redis CONFIG SET appendonly no
    soon "a replica that no grant waits for" '^settings +risk +1 replicas, but min_replicas is 0'
    WHERE="$WHERE?min_replicas=1"
    doctor "no AOF" 0 '^settings +note +the server keeps no AOF' '^promises +note +not durable' '!risk' '!maxmemory' '!appendfsync is'
    ask redis CONFIG SET maxmemory-policy allkeys-lru
    doctor "an eviction policy without a limit" 0 '^settings +note +maxmemory-policy is allkeys-lru' '!risk'
    ask redis CONFIG SET maxmemory 100mb
    doctor "eviction" 1 '^settings +risk +maxmemory-policy is allkeys-lru'
    "$BIN" -C "$WHERE" check >"$DIR/out"
    same "check says nothing of that" 0 $?
    no "nor in its line" holds "$DIR/out" 'maxmemory|risk|note|\|'
    ask redis CONFIG SET maxmemory-policy noeviction
    ask redis CONFIG SET appendonly yes
    ask redis CONFIG SET appendfsync everysec
    doctor "appendfsync" 0 '^settings +note +appendfsync is everysec' '!maxmemory' '!no AOF'
    ask redis CONFIG SET appendfsync always
    healthy "a replica that grants wait for"
    ask redis ACL SETUSER blind on '>pw' '~*' '&*' +@all -info -config
    WHERE=redis://blind:pw@${WHERE#redis://}
    doctor "a user without INFO" 0 '^settings +note +this user may not run INFO'
    has_line "a URL with a password" "$DIR/out" '^witness +note +off: .*: another process cannot open .*; use a config file'
    server kill redis
    doctor "no server" 69 '^server +wrong'
fi

what "postgres"
if start postgres postgres; then
    WHERE="postgres://mortise@127.0.0.1:$PORT/mortise?sslmode=disable"
    healthy "a new server"
    ask postgres -c 'ALTER SYSTEM SET fsync = off' -c 'ALTER SYSTEM SET full_page_writes = off' -c 'SELECT pg_reload_conf()'
    soon "fsync is off" '^settings +risk +fsync is off'
    soon "full_page_writes is off" '^settings +risk +full_page_writes is off'
    ask postgres -c 'ALTER SYSTEM SET fsync = on' -c 'ALTER SYSTEM SET full_page_writes = on' -c 'SELECT pg_reload_conf()'
    soon "both are on" '!^settings +risk'
    ask postgres -c 'ALTER TABLE mortise_lock SET UNLOGGED'
    doctor "an unlogged table" 1 '^settings +risk +the table mortise_lock is UNLOGGED'
    ask postgres -c 'ALTER TABLE mortise_lock SET LOGGED'
    healthy "a logged table"
    ask postgres -c 'CREATE ROLE deploy; ALTER TABLE mortise_record OWNER TO deploy; GRANT ALL ON mortise_record TO mortise'
    doctor "a table of another role" 0 '^settings +note +a table of Mortise belongs to another role' '!risk'
    ask postgres -c 'GRANT deploy TO mortise'
    healthy "of a role that the client is a member of"
    ask postgres -c 'REVOKE deploy FROM mortise'
    WHERE="$WHERE&schema=public"
    healthy "of a role that is trusted"
    ask postgres -c 'CREATE SCHEMA other; CREATE TABLE other.mortise_lock(x int)'
    doctor "tables in two schemas" 0 '^settings +note +several schemas' '!risk'
fi
end
