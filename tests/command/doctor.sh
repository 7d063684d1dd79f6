#!/bin/sh
# `mortise doctor`: what the settings of the server and of this host mean for the promises. A finding comes with its setting, and
# is gone without it.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"
servers=$(dirname "$0")/../servers.sh
end_servers() {
    cleanup
    [ "$BASHPID" = $$ ] || return 0
    local kind
    for kind in redis postgres; do
        [ ! -d "$DIR.$kind" ] || { sh "$servers" end "$kind" "$DIR.$kind" && rm -rf "$DIR.$kind"; }
    done
}
trap end_servers EXIT

# doctor TEXT WANTED-CODE [PATTERN…]: of WHERE; a pattern with a ! before it must not match
doctor() {
    local text=$1 wanted=$2 got pattern
    shift 2
    "$BIN" -C "$WHERE" doctor >"$DIR/out" 2>"$DIR/err"
    got=$?
    same "$text: code" "$wanted" $got
    for pattern in "$@"; do
        case $pattern in
        !*) no "$text: no $pattern" holds "$DIR/out" "${pattern#!}" ;;
        *) has_line "$text" "$DIR/out" "$pattern" ;;
        esac
    done
}

what "sqlite"
WHERE=sqlite:$DIR/doctor.db
doctor "a file" 0 '^server +ok +SQLite' '^settings +ok' '^witness +' '^clock +(ok|note)' '!risk' '!wrong'
"$BIN" -C "$WHERE?witness=off" doctor >"$DIR/out"
has_line "without a witness" "$DIR/out" '^witness +note +off'
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

what "redis"
mkdir "$DIR.redis"
if values=$(sh "$servers" start redis "$DIR.redis" replicas=1 "guard=$$"); then
    WHERE=redis://127.0.0.1:$(sed -n 's/^PORT=//p' <<<"$values")
    set_to() {
        sh "$servers" ask redis "$DIR.redis" CONFIG SET "$@" >/dev/null || wrong "CONFIG SET $*"
    }
    set_to appendonly no
    seen() { "$BIN" -C "$WHERE" doctor >"$DIR/out"; holds "$DIR/out" '^settings +risk +1 replicas, but min_replicas is 0'; }
    yes "a replica that no grant waits for" until_true seen
    WHERE="$WHERE?min_replicas=1"
    doctor "no AOF" 0 '^settings +note +the server keeps no AOF' '^promises +note +not durable' '!risk' '!maxmemory' '!appendfsync'
    set_to maxmemory-policy allkeys-lru
    doctor "an eviction policy without a limit" 0 '^settings +note +maxmemory-policy is allkeys-lru' '!risk'
    set_to maxmemory 100mb
    doctor "eviction" 1 '^settings +risk +maxmemory-policy is allkeys-lru'
    "$BIN" -C "$WHERE" check >"$DIR/out"
    same "check says nothing of that" 0 $?
    no "nor in its line" holds "$DIR/out" 'maxmemory|risk|note|\|'
    set_to maxmemory-policy noeviction
    set_to appendonly yes
    set_to appendfsync everysec
    doctor "appendfsync" 0 '^settings +note +appendfsync is everysec' '!maxmemory' '!no AOF'
    set_to appendfsync always
    doctor "nothing to say" 0 '^settings +ok' '!appendfsync'
    sh "$servers" ask redis "$DIR.redis" ACL SETUSER blind on '>pw' '~*' '&*' +@all -info -config >/dev/null
    WHERE=redis://blind:pw@${WHERE#redis://}
    doctor "a user without INFO" 0 '^settings +note +this user may not run INFO'
    sh "$servers" kill redis "$DIR.redis"
    doctor "no server" 69 '^server +wrong'
else
    printf 'not checked: no redis-server\n'
fi

what "postgres"
mkdir "$DIR.postgres"
chmod a+x "$DIR.postgres"
if values=$(sh "$servers" start postgres "$DIR.postgres" "guard=$$"); then
    WHERE="postgres://mortise@127.0.0.1:$(sed -n 's/^PORT=//p' <<<"$values")/mortise?sslmode=disable"
    ask() {
        sh "$servers" ask postgres "$DIR.postgres" -c "$1" >/dev/null || wrong "$1"
    }
    says() { "$BIN" -C "$WHERE" doctor 2>"$DIR/err" | grep -Eq "$1"; }
    ask 'ALTER SYSTEM SET fsync = off'
    ask 'SELECT pg_reload_conf()'
    yes "fsync is off: a risk" until_true says '^settings +risk +fsync is off'
    ask 'ALTER SYSTEM SET fsync = on'
    ask 'ALTER SYSTEM SET full_page_writes = on'
    ask 'SELECT pg_reload_conf()'
    quiet() { ! says '^settings +risk'; }
    yes "and none when it is on" until_true quiet
    ask 'CREATE SCHEMA other; CREATE TABLE other.mortise_lock(x int)'
    WHERE="$WHERE&schema=public"
    doctor "tables in two schemas" 0 '^settings +note +several schemas' '!risk'
fi
