# hooks.sh - what the hooks of the conformance suite share, for subjects with real servers: a private server
# (tests/servers.sh) and the fault proxy in front of each of its ports. Sourced by KIND.sh in this folder, which has set
# KIND and defined left(): it prints what clients have left in the server, nothing if all is well. Knows no kind of server.
#
# Called as KIND.sh VERB FOLDER: subject.c says which VERBs there are, and what they promise. Words in
# $MORTISE_SERVER are KEYs of servers.sh (a server with a password, with replicas, …); `start` prints its
# values, where HOST and the PORTs are the proxies'. Everything ends with the process that called this script.
# shellcheck shell=sh disable=SC2154 # KIND
set -eu

hooks_dir=$(CDPATH='' cd -- "${0%/*}" && pwd -P)
VERB=${1:?VERB} FOLDER=${2:?FOLDER}
SERVER=$FOLDER/server
parent=${MORTISE_HOOKS_PARENT:-$PPID} # it all ends with

server() {
    server_verb=$1
    shift
    sh "$hooks_dir/../servers.sh" "$server_verb" "$KIND" "$SERVER" "$@"
}

# ask WORD…: the server, by its own client, past the proxy
ask() {
    server ask "$@"
}

# say COMMAND…: to each proxy
say() {
    for control in "$FOLDER"/proxy*.control; do
        [ ! -S "$control" ] || "$MORTISE_PROXY" say "$control" "$@" >/dev/null
    done
}

# Lines that match $MORTISE_LEFT_BESIDE are left aside.
nothing_left() {
    rm -f -- "$FOLDER/left"
    left >"$FOLDER/left.all" 2>&1 || return
    grep -vE "${MORTISE_LEFT_BESIDE:-^$}" "$FOLDER/left.all" >"$FOLDER/left" || true
    [ ! -s "$FOLDER/left" ]
}

up_s() {
    cut -d. -f1 /proc/uptime
}

# What was closed a moment ago may take a moment to go: $MORTISE_LEFT_PATIENCE_S seconds at most, which is less than a ttl of 60 s,
# so a claim that only expires is seen. Fails if the server could not be asked.
tell_left() {
    give_up_s=$(($(up_s) + ${MORTISE_LEFT_PATIENCE_S:-45}))
    until nothing_left; do
        if [ "$(up_s)" -ge "$give_up_s" ]; then
            [ -f "$FOLDER/left" ] || {
                echo "$KIND: what was left could not be asked for:" >&2
                cat "$FOLDER/left.all" >&2
                return 1
            }
            cat "$FOLDER/left"
            return 0
        fi
        sleep 0.05
    done
}

# start_proxy SUFFIX HOST PORT: prints the port
start_proxy() {
    proxy=$FOLDER/proxy$1
    "$MORTISE_PROXY" "$proxy.control" "$2" "$3" "with=$parent" </dev/null >"$proxy.out" 2>"$proxy.err" &
    proxy_pid=$!
    until grep -q '^PORT=' "$proxy.out"; do
        if ! kill -0 "$proxy_pid" 2>/dev/null; then
            cat "$proxy.err" >&2
            return 1
        fi
        sleep 0.02
    done
    sed -n 's/^PORT=//p' "$proxy.out"
}

# The server's values, with the proxies' ports in place of its own.
tell_values() {
    while IFS='=' read -r name value; do
        case $name in
        PORT*)
            suffix=${name#PORT}
            [ -S "$FOLDER/proxy$suffix.control" ] || start_proxy "$suffix" 127.0.0.1 "$value" >/dev/null
            value=$(sed -n 's/^PORT=//p' "$FOLDER/proxy$suffix.out")
            ;;
        esac
        echo "$name=$value"
    done <"$FOLDER/values"
}

# The nodes of a Redis Cluster lead clients to each other: behind a proxy, to the proxies.
map_ports() {
    grep -q '^CLUSTER=' "$FOLDER/values" || return 0
    sed -n 's/^PORT\([0-9]*\)=/\1:/p' "$FOLDER/values" | while IFS=: read -r suffix port; do
        say map "$port" "$(sed -n 's/^PORT=//p' "$FOLDER/proxy$suffix.out")"
    done
}

start() {
    : "${MORTISE_PROXY:?the fault proxy of the build}"
    mkdir -p "$SERVER"
    if [ -f "$FOLDER/values" ]; then
        server start >/dev/null
    else
        # shellcheck disable=SC2086 # words
        server start "guard=$parent" ${MORTISE_SERVER:-} >"$FOLDER/values.new" || exit
        mv -- "$FOLDER/values.new" "$FOLDER/values"
    fi
    say accept
    tell_values
    [ -f "$FOLDER/mapped" ] || map_ports
    : >"$FOLDER/mapped"
}

case $VERB in
start) start ;;
stop)
    server stop
    say refuse
    ;;
freeze | thaw) server "$VERB" ;;
lose | pass) say "$VERB" ;;
left) tell_left ;;
end)
    say quit 2>/dev/null || true # it may be dead
    server end
    ;;
*)
    echo "$0: there is no verb $VERB" >&2
    exit 64
    ;;
esac
