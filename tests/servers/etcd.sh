# etcd.sh - private etcd servers, for servers.sh: one alone, or a cluster. Debian's packages "etcd-server" and
# "etcd-client" are enough.
#
# KEYs:
#   nodes=N            a cluster of N; without it one server alone
#   heartbeat=MS       the leader's heartbeat (100)
#   election=MS        the election timeout (1000): leases have at least one and a half times as much, in whole seconds
#   sync=no            do not force the log to the disk (from etcd 3.5 on; without effect before)
#   quota=BYTES        the size of the database at which the server refuses writes (the no-space alarm)
#   user=NAME          authentication is on: this user has the rights on the prefix of `rights`, and "root" with the
#                      password "root" has all
#   password=TEXT      of that user
#   rights=PREFIX      the prefix on which that user may read and write (mortise/)
#   tokens=SECONDS     how long an unused token of a user lives
#   tls=yes            clients use TLS: CA is the file of the certificate that signed those of the servers
#   clients=yes        with tls: clients need a certificate of that CA, too: CERT and KEY
#   disk=PROGRAM       starts each server: tests/etcd/slow_disk.c; FOLDER/NAME.disk says how slow its disk is
#   arg=WORD           an argument of etcd, for each server; may be given more than once
#   way=N:PORT         the others reach the peer port of server N by PORT, the caller's proxy; likewise. (A peer has one address
#                      for all others, so there is no proxy for each pair)
# Values: HOST PORT PORT2 … SERVERS (all of them, as a client takes them) ROLE ROLE2 … (leader, follower, or "gone", at the
# moment) USER PASSWORD CA CERT KEY
# `ask` runs etcdctl with the words as its command, as root if there are users.
# shellcheck shell=sh disable=SC2034,SC2154 # the variables are servers.sh's

kind_programs='etcd etcdctl timeout'
kind_keys='nodes heartbeat election sync quota user password rights tokens tls clients disk arg way'
kind_patience_s=60

kind_members() {
    count 1 "$(setting nodes 1)"
}

kind_check() {
    if [ "$(setting tls)" = yes ] && ! command -v openssl >/dev/null; then
        echo 'openssl is not installed'
        return 1
    fi
}

etcd_scheme() {
    if [ "$(setting tls)" = yes ]; then echo https; else echo http; fi
}

# The peer port of N as the others see it.
etcd_way() {
    etcd_port=''
    for etcd_word in $(settings way); do
        case $etcd_word in
        "$1:"*) etcd_port=${etcd_word#"$1:"} ;;
        esac
    done
    echo "${etcd_port:-$(server_port "$1" peer)}"
}

# ca.pem, and server.pem and server.key, which it signed: for 127.0.0.1 and localhost. Made once.
etcd_certificates() {
    [ ! -f "$FOLDER/server.pem" ] || return 0
    (
        cd "$FOLDER" && umask 077 || exit
        openssl req -x509 -newkey rsa:2048 -nodes -days 7 -subj /CN=mortise-test-ca -keyout ca.key -out ca.pem &&
            openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr &&
            echo 'subjectAltName=DNS:localhost,IP:127.0.0.1' >server.ext &&
            openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 7 -extfile server.ext \
                -out server.new &&
            openssl req -newkey rsa:2048 -nodes -subj /CN=client -keyout client.key -out client.csr &&
            openssl x509 -req -in client.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 7 -out client.pem &&
            mv server.new server.pem
    ) >"$FOLDER/certificates.log" 2>&1
}

# Every server is told all peers' ports, so they are reserved before the first one runs.
kind_prepare() {
    server_port "$1" >/dev/null
    for etcd_peer in $(kind_members); do
        server_port "$etcd_peer" peer >/dev/null
    done
    [ "$(setting tls)" != yes ] || etcd_certificates
}

etcd_cluster() {
    etcd_all=''
    for etcd_peer in $(kind_members); do
        etcd_all=$etcd_all,m$etcd_peer=http://127.0.0.1:$(etcd_way "$etcd_peer")
    done
    echo "${etcd_all#,}"
}

kind_run() {
    etcd_name=$1
    etcd_url=$(etcd_scheme)://127.0.0.1:$(server_port "$1")
    set -- --name "m$1" --data-dir "$FOLDER/$1/data" --logger zap --log-level warn --log-outputs stderr \
        --listen-client-urls "$etcd_url" --advertise-client-urls "$etcd_url" \
        --listen-peer-urls "http://127.0.0.1:$(server_port "$1" peer)" \
        --initial-advertise-peer-urls "http://127.0.0.1:$(etcd_way "$1")" \
        --initial-cluster "$(etcd_cluster)" --initial-cluster-token "mortise-$(server_port 1 peer)" \
        --heartbeat-interval "$(setting heartbeat 100)" --election-timeout "$(setting election 1000)"
    [ -z "$(setting quota)" ] || set -- "$@" --quota-backend-bytes "$(setting quota)"
    [ -z "$(setting tokens)" ] || set -- "$@" --auth-token-ttl "$(setting tokens)"
    [ "$(setting tls)" != yes ] || set -- "$@" --cert-file "$FOLDER/server.pem" --key-file "$FOLDER/server.key"
    [ "$(setting clients)" != yes ] || set -- "$@" --client-cert-auth --trusted-ca-file "$FOLDER/ca.pem"
    if [ "$(setting sync)" = no ] && etcd --help 2>&1 | grep -q unsafe-no-fsync; then
        set -- "$@" --unsafe-no-fsync
    fi
    for etcd_word in $(settings arg); do
        set -- "$@" "$etcd_word"
    done
    [ -z "$(setting disk)" ] || exec "$(setting disk)" "$FOLDER/$etcd_name.disk" etcd "$@"
    exec etcd "$@"
}

# etcd_ctl PATIENCE NAME WORD…
etcd_ctl() {
    etcd_patience=$1 etcd_endpoint=$(etcd_scheme)://127.0.0.1:$(server_port "$2")
    shift 2
    set -- --endpoints "$etcd_endpoint" "$@"
    [ "$(setting tls)" != yes ] || set -- --cacert "$FOLDER/ca.pem" "$@"
    [ "$(setting clients)" != yes ] || set -- --cert "$FOLDER/client.pem" --key "$FOLDER/client.key" "$@"
    [ ! -f "$FOLDER/users" ] || set -- --user root:root "$@"
    ETCDCTL_API=3 timeout "$etcd_patience" etcdctl --dial-timeout 2s --command-timeout "$((etcd_patience - 1))s" "$@"
}

# The users are made once, by the first member that answers.
etcd_users() {
    [ -n "$(setting user)" ] && [ ! -f "$FOLDER/users" ] || return 0
    etcd_prefix=$(setting rights mortise/)
    {
        etcd_ctl 5 "$1" user add root:root && etcd_ctl 5 "$1" user grant-role root root &&
            etcd_ctl 5 "$1" role add locks &&
            etcd_ctl 5 "$1" role grant-permission --prefix=true locks readwrite "$etcd_prefix" &&
            etcd_ctl 5 "$1" user add "$(setting user):$(setting password)" &&
            etcd_ctl 5 "$1" user grant-role "$(setting user)" locks && etcd_ctl 5 "$1" auth enable
    } >"$FOLDER/users.log" 2>&1 && : >"$FOLDER/users"
}

kind_may_be_ready() {
    port_listens "$(server_port "$1")"
}

# It serves, with its cluster, and is ours: nobody else has this cluster token and so this data.
kind_ready() {
    [ -d "$FOLDER/$1/data/member" ] || return 1
    etcd_ctl 3 "$1" get mortise-ready >/dev/null 2>&1 || return 1
    etcd_users "$1"
}

etcd_role() {
    member_runs "$1" || {
        echo gone
        return
    }
    # endpoint, id, version, size, is leader, …
    etcd_said=$(etcd_ctl 3 "$1" endpoint status 2>/dev/null | cut -d, -f5) || etcd_said=''
    case $etcd_said in
    *true*) echo leader ;;
    *false*) echo follower ;;
    *) echo gone ;;
    esac
}

kind_values() {
    echo HOST=127.0.0.1
    etcd_all=''
    for member in $(kind_members); do
        echo "PORT$(member_suffix "$member")=$(server_port "$member")"
        echo "ROLE$(member_suffix "$member")=$(etcd_role "$member")"
        etcd_all=$etcd_all,127.0.0.1:$(server_port "$member")
    done
    echo "SERVERS=${etcd_all#,}"
    [ -z "$(setting user)" ] || echo "USER=$(setting user)"
    [ -z "$(setting password)" ] || echo "PASSWORD=$(setting password)"
    [ "$(setting tls)" != yes ] || echo "CA=$FOLDER/ca.pem"
    [ "$(setting clients)" != yes ] || printf 'CERT=%s\nKEY=%s\n' "$FOLDER/client.pem" "$FOLDER/client.key"
}

kind_ask() {
    etcd_asked=$1
    shift
    etcd_ctl 60 "$etcd_asked" "$@"
}
