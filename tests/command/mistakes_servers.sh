#!/bin/sh
# Mistakes of newcomers with servers that take long to start: each answer says what is wrong, where, and what to do. mistakes.sh has
# the rest.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"
. "$(dirname "$0")/doctor_common"
. "$(dirname "$0")/mistakes_common"

postgres() {
    what "postgres"
    start postgres postgres standby=yes || return 0
    local here=127.0.0.1:$PORT no=sslmode=disable
    url "a wrong port" 69 'Connection refused' '127.0.0.1:1' 'Is the server running' "postgres://mortise@127.0.0.1:1/mortise?$no"
    url "a wrong database" 69 'database "none" does not exist' "$here" 'check the user, .* the database' "postgres://mortise@$here/none?$no"
    url "a wrong role" 69 'role "nobody" does not exist' "$here" 'check the user' "postgres://nobody@$here/mortise?$no"
    works "the right one" "postgres://mortise@$here/mortise?$no"
    ask postgres -c 'CREATE ROLE poor LOGIN'
    ask postgres -c 'CREATE DATABASE fresh'
    url "a role without rights on the tables" 69 'permission denied' "$here" 'grant this role SELECT, INSERT' "postgres://poor@$here/mortise?$no"
    url "a role that may not make the tables" 69 'permission denied' "$here" 'mortise schema postgres' "postgres://poor@$here/fresh?$no"
    url "a schema that is missing" 78 'schema "none" does not exist' "$here" 'create it' "postgres://mortise@$here/mortise?$no&schema=none"
    url "a standby" 69 'standby' "127.0.0.1:$PORT2" 'name the primary' "postgres://mortise@127.0.0.1:$PORT2/mortise?$no"
    url "a wrong URL" 78 'port' 'postgres' '%2F|number' "postgres://mortise:a/b@$here/mortise?$no"
    mistake "a server that is no MySQL" 69 'was not acquired' "$here" 'are host and port right' \
        -C "mysql://mortise@$here/mortise?tls=no" run -w 500ms x -- true
}

mysql() {
    what "mysql"
    start mysql mysql password=secret || return 0
    local here=127.0.0.1:$PORT
    url "a wrong port" 69 "Can't connect" '127.0.0.1:1' 'does a server run there' "mysql://mortise@127.0.0.1:1/mortise?tls=no"
    url "a wrong password" 69 'Access denied' "$here" 'check user and password' "mysql://mortise:no@$here/mortise?tls=no"
    url "a wrong user" 69 'Access denied' "$here" 'check user and password' "mysql://nobody:secret@$here/mortise?tls=no"
    url "a wrong database" 69 'none' "$here" 'create the database|create it' "mysql://mortise:secret@$here/none?tls=no"
    url "no database" 78 'database is missing' "$here" 'set the name' "mysql://mortise:secret@$here?tls=no"
    works "the right one" "mysql://mortise:secret@$here/mortise?tls=no"
    ask mysql -e "CREATE USER poor@'%' IDENTIFIED BY 'pw'; GRANT SELECT ON mortise.* TO poor@'%'; CREATE DATABASE fresh;
        GRANT SELECT ON fresh.* TO poor@'%'"
    url "a user without rights on the tables" 69 'denied' "$here" 'grant this user SELECT, INSERT' "mysql://poor:pw@$here/mortise?tls=no"
    url "a user who may not make the tables" 69 'denied' "$here" 'mortise schema mysql' "mysql://poor:pw@$here/fresh?tls=no"
}

etcd() {
    what "etcd"
    start etcd etcd user=locker password=secret || return 0
    local here=127.0.0.1:$PORT
    url "a wrong port" 69 'no connection' '127.0.0.1:1' 'does a server run there' etcd://127.0.0.1:1
    url "no user" 69 'user name is empty' "$here" 'set user and password' "etcd://$here"
    url "a wrong password" 69 'invalid user ID or password' "$here" 'check user and password' "etcd://locker:no@$here"
    url "a wrong prefix" 69 'permission denied' "$here" 'right readwrite on the prefix' "etcd://locker:secret@$here?prefix=other"
    url "TLS, which the server has not" 69 'no connection' "$here" 'does it use TLS' "etcd://locker:secret@$here?tls=yes"
    url "a password without a user" 78 'password' 'etcd' 'needs a user' "etcd://:secret@$here"
}

zookeeper() {
    what "zookeeper"
    start zookeeper zookeeper || return 0
    local here=127.0.0.1:$PORT
    url "a wrong port" 69 'no connection' '127.0.0.1:1' 'does ZooKeeper run there' zookeeper://127.0.0.1:1
    works "a root with an ACL" "zookeeper://$here?auth=digest:u:p&root=/acl"
    url "no auth" 69 'not authorised' "$here" 'set auth' "zookeeper://$here?root=/acl"
    url "a wrong password" 69 'not authorised' "$here" 'the password is wrong' "zookeeper://$here?auth=digest:u:q&root=/acl"
    url "an auth without its scheme" 78 'auth' 'zookeeper' 'such as digest:user:password' "zookeeper://$here?auth=secret"
    url "TLS, which the driver has not" 78 'no TLS' 'tls = yes' 'use a tunnel' "zookeeper://$here?tls=yes"
}

tests=${*:-postgres mysql etcd zookeeper}
for test in $tests; do
    $test
done
mistakes_end
