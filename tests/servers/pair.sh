# pair.sh - a private Redis and a private ZooKeeper, for servers.sh: a fleet moves from one to the other (migrate). Member 1
# is a Redis, member 2 a ZooKeeper; redis.sh and zookeeper.sh have what is special for each.
#
# KEYs that only one of them has:
#   aof=yes           the Redis
#   tick=MS, sync=no  the ZooKeeper
# Values: HOST PORT (Redis) PORT2 (ZooKeeper)
# shellcheck shell=sh disable=SC2034,SC2154 # the variables are servers.sh's

kind_keys='aof tick sync'
kind_programs='redis-server redis-cli java bash timeout'
kind_patience_s=150

# pair_of NAME: what servers.sh knows of that member from now on, in a subshell of the caller's.
pair_of() {
    case $1 in
    1) . "$here/servers/redis.sh" ;;
    2) . "$here/servers/zookeeper.sh" ;;
    esac
}

kind_check() {
    (pair_of 1 && kind_check) && (pair_of 2 && kind_check)
}

kind_members() {
    count 1 2
}

kind_prepare() (
    pair_of "$1"
    kind_prepare "$1"
)

kind_run() {
    pair_of "$1" # servers.sh has made a process of its own for it
    kind_run "$1"
}

kind_may_be_ready() (
    pair_of "$1"
    kind_may_be_ready "$1"
)

kind_ready() (
    pair_of "$1"
    kind_ready "$@"
)

kind_ask() (
    pair_of "$1"
    kind_ask "$@"
)

kind_values() {
    echo HOST=127.0.0.1
    echo "PORT=$(server_port 1)"
    echo "PORT2=$(server_port 2)"
}
