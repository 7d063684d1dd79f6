# zookeeper.sh - private ZooKeeper servers, for servers.sh: one alone, or an ensemble. Debian's package
# "zookeeper" is enough: its jars are used, not its scripts, folders or service.
#
# KEYs:
#   nodes=N           an ensemble of N; without it one server alone
#   tick=MS           tickTime (200): sessions may be from twice to twenty times as long
#   containers=MS     how often the server looks for empty containers (60000)
#   sync=no           do not force the log to the disk before a request is answered
#   heap=SIZE         of the JVM (64m)
#   conf=LINE         a line of zoo.cfg, for each server; may be given more than once
#   java=WORD         an argument of the JVM; likewise
#   log=LINE          a line of log4j.properties; likewise
#   way=N:M:PORT      server N of an ensemble uses PORT, the caller's proxy, to reach M's quorum port when it follows
#                     M; likewise
#   clock=FILE        loaded into each: tests/torture/clock.c, whose clock is what FOLDER/clock says
#   disk=FILE         loaded into each: tests/torture/disk.c, whose disk is full while FOLDER/NAME.full exists
# Values: HOST PORT PORT2 … SERVERS (all of them, as a client takes them) ROLE ROLE2 … (leader, follower,
# standalone, or "gone", at the moment)
# `ask` runs ZooKeeper's own client with the words as its command.
# shellcheck shell=sh disable=SC2034,SC2154 # the variables are servers.sh's

kind_programs='java bash timeout'
kind_patience_s=150 # a JVM each, and an election
kind_keys='nodes tick containers sync heap conf java log way clock disk'

zookeeper_jars=/usr/share/java
zookeeper_classes=''
for zookeeper_jar in zookeeper zookeeper-jute slf4j-api slf4j-log4j12 log4j-1.2 netty-all \
    netty-buffer netty-codec netty-common netty-handler netty-resolver netty-transport \
    netty-transport-native-epoll snappy-java metrics-core commons-cli commons-io; do
    [ ! -f "$zookeeper_jars/$zookeeper_jar.jar" ] ||
        zookeeper_classes=$zookeeper_classes:$zookeeper_jars/$zookeeper_jar.jar
done
zookeeper_classes=${zookeeper_classes#:}
zookeeper_jvm='-XX:+UseSerialGC -XX:TieredStopAtLevel=1'
zookeeper_shared=${MORTISE_BUILD_DIR:+$MORTISE_BUILD_DIR/tests/zookeeper.jsa}

kind_check() {
    [ -f "$zookeeper_jars/zookeeper.jar" ] || {
        echo "there is no $zookeeper_jars/zookeeper.jar"
        return 1
    }
}

kind_members() {
    count 1 "$(setting nodes 1)"
}

# zookeeper_way N M: the quorum port of M as N sees it.
zookeeper_way() {
    zookeeper_port=''
    for zookeeper_word in $(settings way); do
        case $zookeeper_word in
        "$1:$2:"*) zookeeper_port=${zookeeper_word#"$1:$2:"} ;;
        esac
    done
    echo "${zookeeper_port:-$(server_port "$2" peer)}"
}

zookeeper_conf() {
    printf '%s\n' "tickTime=$(setting tick 200)" initLimit=50 syncLimit=10 "dataDir=$FOLDER/$1/data" \
        "clientPort=$(server_port "$1")" clientPortAddress=127.0.0.1 admin.enableServer=false \
        '4lw.commands.whitelist=*' maxClientCnxns=0
    if [ "$(setting nodes 1)" -gt 1 ]; then
        for zookeeper_peer in $(kind_members); do
            echo "server.$zookeeper_peer=127.0.0.1:$(zookeeper_way "$1" "$zookeeper_peer"):$(server_port "$zookeeper_peer" election)"
        done
    fi
    settings conf
}

# The class that says that it binds its port: kind_may_be_ready.
zookeeper_log() {
    printf '%s\n' 'log4j.rootLogger=WARN, out' log4j.appender.out=org.apache.log4j.ConsoleAppender \
        log4j.logger.org.apache.zookeeper.server.NIOServerCnxnFactory=INFO \
        log4j.appender.out.layout=org.apache.log4j.PatternLayout \
        'log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss,SSS} %-5p %c{1}: %m%n'
    settings log
}

# A large part of what a JVM does at its start is to read, check and lay out its classes, and a suite starts many. So one that
# serves nobody else leaves them in an archive beside the build; an empty file says that none could be made here. What does not fit
# the archive, another JVM or other jars, goes without.
zookeeper_archive() {
    [ -n "$zookeeper_shared" ] && [ ! -f "$zookeeper_shared" ] && [ -w "$MORTISE_BUILD_DIR" ] || return 0
    mkdir -p "$MORTISE_BUILD_DIR/tests" "$FOLDER/archive/data"
    (
        flock 8
        [ -f "$zookeeper_shared" ] || zookeeper_make_archive >"$FOLDER/archive/made.log" 2>&1 8>&- || : >"$zookeeper_shared"
    ) 8>"$zookeeper_shared.lock"
}

zookeeper_make_archive() {
    printf '%s\n' tickTime=200 "dataDir=$FOLDER/archive/data" "clientPort=$(server_port archive)" \
        clientPortAddress=127.0.0.1 admin.enableServer=false '4lw.commands.whitelist=*' >"$FOLDER/archive/zoo.cfg"
    zookeeper_log >"$FOLDER/archive/log4j.properties"
    # shellcheck disable=SC2086 # words
    timeout -k 60 100 java -Xmx64m $zookeeper_jvm "-XX:ArchiveClassesAtExit=$zookeeper_shared.new" \
        "-Dlog4j.configuration=file:$FOLDER/archive/log4j.properties" -Dzookeeper.jmx.log4j.disable=true \
        -cp "$zookeeper_classes" org.apache.zookeeper.server.quorum.QuorumPeerMain "$FOLDER/archive/zoo.cfg" &
    zookeeper_maker=$!
    zookeeper_served=no
    if until_within 90 zookeeper_made && start_time "$zookeeper_maker"; then
        ! kind_ask archive create /seen || zookeeper_served=yes # then what a session needs is in it, too
    fi
    kill "$zookeeper_maker"
    zookeeper_code=0
    wait "$zookeeper_maker" || zookeeper_code=$? # 143: it had served until it had that signal
    [ "$zookeeper_served" = yes ] && [ "$zookeeper_code" -eq 143 ] && mv -- "$zookeeper_shared.new" "$zookeeper_shared"
}

# Or it has ended.
zookeeper_made() {
    ! start_time "$zookeeper_maker" || kind_ready archive
}

kind_prepare() {
    zookeeper_archive
    [ -d "$FOLDER/$1/data" ] || mkdir -p "$FOLDER/$1/data"
    echo "$1" >"$FOLDER/$1/data/myid"
    zookeeper_conf "$1" >"$FOLDER/$1/zoo.cfg"
    zookeeper_log >"$FOLDER/$1/log4j.properties"
}

kind_run() {
    zookeeper_name=$1
    # shellcheck disable=SC2086 # words
    set -- "-Xmx$(setting heap 64m)" -Xms16m $zookeeper_jvm \
        "-Dlog4j.configuration=file:$FOLDER/$zookeeper_name/log4j.properties" \
        "-Dznode.container.checkIntervalMs=$(setting containers 60000)" -Dzookeeper.jmx.log4j.disable=true
    [ ! -s "$zookeeper_shared" ] || set -- "$@" "-XX:SharedArchiveFile=$zookeeper_shared"
    [ "$(setting sync)" != no ] || set -- "$@" -Dzookeeper.forceSync=no
    for zookeeper_word in $(settings java); do
        set -- "$@" "$zookeeper_word"
    done
    if [ -n "$(setting clock)" ]; then
        export "LD_PRELOAD=$(setting clock)" "MORTISE_CLOCK=$FOLDER/clock"
    elif [ -n "$(setting disk)" ]; then
        export "LD_PRELOAD=$(setting disk)" "MORTISE_DISK_FULL=$FOLDER/$zookeeper_name.full"
    fi
    exec java "$@" -cp "$zookeeper_classes" org.apache.zookeeper.server.quorum.QuorumPeerMain \
        "$FOLDER/$zookeeper_name/zoo.cfg"
}

# zookeeper_words NAME WORD…: its answers to "four letter words"; fails where it gives none. Asked again and again while a
# server starts, so it is light: bash can open a connection itself.
zookeeper_words() {
    zookeeper_name=$1
    shift
    timeout 6 bash -c '
        port=$1
        shift
        for word; do
            exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 1
            printf %s "$word" >&3
            mapfile -u 3 answer
            printf %s "${answer[@]}"
        done' words "$(server_port "$zookeeper_name")" "$@"
}

kind_may_be_ready() {
    log_says "$1" 'binding to port'
}

# It serves, as what it is in its ensemble, and its data is ours.
kind_ready() {
    zookeeper_said=$(zookeeper_words "$1" srvr conf 2>/dev/null) || return 1
    case $newline$zookeeper_said in
    *"${newline}Mode: "*"${newline}dataDir=$FOLDER/$1/data"*) ;;
    *) return 1 ;;
    esac
}

zookeeper_role() {
    member_runs "$1" || {
        echo gone
        return
    }
    zookeeper_mode=$(zookeeper_words "$1" srvr 2>/dev/null | sed -n 's/^Mode: //p')
    echo "${zookeeper_mode:-gone}"
}

kind_values() {
    echo HOST=127.0.0.1
    zookeeper_all=''
    for member in $(kind_members); do
        echo "PORT$(member_suffix "$member")=$(server_port "$member")"
        echo "ROLE$(member_suffix "$member")=$(zookeeper_role "$member")"
        zookeeper_all=$zookeeper_all,127.0.0.1:$(server_port "$member")
    done
    echo "SERVERS=${zookeeper_all#,}"
}

kind_ask() {
    zookeeper_name=$1
    shift
    # shellcheck disable=SC2086 # words
    timeout 60 java -Xmx64m $zookeeper_jvm \
        "-Dlog4j.configuration=file:$FOLDER/$zookeeper_name/log4j.properties" -cp "$zookeeper_classes" \
        org.apache.zookeeper.ZooKeeperMain -server "127.0.0.1:$(server_port "$zookeeper_name")" "$@"
}
