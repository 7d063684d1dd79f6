# ports.sh - free ports for the servers of tests, in the folder $FOLDER of one of them. Sourced by servers.sh.
# shellcheck shell=sh disable=SC2154 # FOLDER

# port_listens PORT: somebody listens there. The kernel names those who listen first; the connections behind them, which in a
# run of all tests are thousands that have ended, would take it ten times as long as awk takes.
port_listens() {
    awk -v "socket=:$(printf '%04X' "$1") 0*:0000 0A " '
        / 0A / { if ($0 ~ socket) { found = 1; exit } next }
        FNR > 1 { nextfile }
        END { exit !found }' /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

server_port() {
    port_file=$FOLDER/$1${2:+-$2}.port
    [ -f "$port_file" ] || reserve_port "$port_file"
    read -r port_noted <"$port_file" && echo "$port_noted"
}

# reserve_port FILE: writes a free port into FILE, below the range from which Linux takes the ports of outgoing connections
# if nobody has set another one: so whoever has it listens there. No other test of this user takes it until FOLDER is
# deleted: while a server is stopped, nothing else shows that its port is in use.
reserve_port() {
    ports_folder=/tmp/mortise-test-ports-$(id -u) # not in $TMPDIR: tests have folders of their own there
    [ -d "$ports_folder" ] || (umask 077 && mkdir -p "$ports_folder")
    (
        flock 8
        set -- "$1" "$ports_folder"/[0-9]*
        [ $# -lt 1000 ] || forget_old_ports
        port=0
        while [ "$port" -eq 0 ] || port_listens "$port" || port_is_reserved "$port"; do
            read -r random </proc/sys/kernel/random/uuid
            port=$((12000 + 0x${random%%-*} % 20000))
        done
        echo "$FOLDER" >"$ports_folder/$port"
        echo "$port" >"$1"
    ) 8>"$ports_folder/lock"
}

# For a server that the caller starts itself. Each has a number of its own.
another_port() {
    number=1
    while [ -f "$FOLDER/other-$number.port" ]; do
        number=$((number + 1))
    done
    server_port "other-$number"
}

forget_old_ports() {
    for old in "$ports_folder"/[0-9]*; do
        port_is_reserved "${old##*/}" || rm -f -- "$old"
    done
}

port_is_reserved() {
    [ -f "$ports_folder/$1" ] && read -r port_folder <"$ports_folder/$1" && [ -d "$port_folder" ]
}
