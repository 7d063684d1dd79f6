#!/bin/sh
# interop.sh - other clients and this driver on one lock, pair by pair, with a counter in a file that each side reads and
# writes without any other protection: if it is not exact, there were two holders. kazoo and Curator come from Debian
# (python3-kazoo, libcurator-recipes-java). Exits 77 if neither is installed.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
folder=$(mktemp -d "${TMPDIR:-/tmp}/mortise-interop.XXXXXX")
servers() {
    servers_verb=$1
    shift
    sh "$here/../servers.sh" "$servers_verb" zookeeper "$folder" "$@"
}
holders=''
end() {
    for holder in $holders; do
        kill "$holder" || true
    done
    servers end || true
    rm -rf -- "$folder"
}
trap end EXIT

python=''
for candidate in python3 /usr/bin/python3; do
    [ -n "$python" ] || ! "$candidate" -c 'import kazoo' 2>/dev/null || python=$candidate
done
jars=/usr/share/java
curator=''
if [ -f "$jars/curator-recipes.jar" ] && command -v javac >/dev/null; then
    curator=yes
fi
[ -n "$python$curator" ] || {
    echo 'interop.sh: skipped: neither kazoo nor Curator is installed' >&2
    exit 77
}

# Idle folders are not swept: the others do not expect that one is gone that they have seen.
servers start "guard=$$" tick=200 sync=no containers=3600000 conf=maxSessionTimeout=20000 >"$folder/values"
address=127.0.0.1:$(sed -n 's/^PORT=//p' "$folder/values")
counter=$folder/counter

# add_ours STYLE N: by the command
add_ours() {
    n=0
    while [ "$n" -lt "$2" ]; do
        mortise -C "zookeeper://$address/pair?node_style=$1&session_timeout=20s" run -w 60s both -- \
            sh -c 'read -r n <"$1" && echo $((n + 1)) >"$1"' sh "$counter" || return
        n=$((n + 1))
    done
}

# turns_ours STYLE N: reads and writes in turn, by the command
turns_ours() {
    n=0
    while [ "$n" -lt "$2" ]; do
        mortise -C "zookeeper://$address/pair?node_style=$1&session_timeout=20s" run -w 60s turns -- \
            sh -c 'read -r n <"$1" && echo $((n + 1)) >"$1"' sh "$counter" || return
        mortise -C "zookeeper://$address/pair?node_style=$1&session_timeout=20s" run -w 60s --shared turns -- \
            sh -c 'read -r n <"$1" && sleep 0.01 && read -r m <"$1" && [ "$n" -eq "$m" ]' sh "$counter" || return
        n=$((n + 1))
    done
}

# turns_kazoo N: in one session. The ReadLock of kazoo 2.8 waits for every writer, those behind it too, and such a writer
# waits for it: so a reader that has waited for long begins anew.
turns_kazoo() {
    timeout 200 "$python" - "$address" "$counter" "$1" <<'CODE'
import logging, sys, time
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
logging.basicConfig(level=logging.CRITICAL)
address, counter, turns = sys.argv[1:]
client = KazooClient(hosts=address)
client.start()
open(counter + ".begun", "w").close()
def number():
    with open(counter) as file:
        return int(file.read())
for turn in range(int(turns)):
    with client.WriteLock("/pair/turns", "kazoo"):
        next_number = number() + 1
        with open(counter, "w") as file:
            file.write("%d\n" % next_number)
    while True:
        lock = client.ReadLock("/pair/turns", "kazoo")
        try:
            lock.acquire(timeout=0.5)
            break
        except LockTimeout:
            pass
    first = number()
    time.sleep(0.01)
    if number() != first:
        sys.exit("the number changed beside a reader of kazoo")
    lock.release()
client.stop()
CODE
}

# add_kazoo N PATTERNS: in one session
add_kazoo() {
    timeout 100 "$python" - "$address" "$counter" "$1" "$2" <<'CODE'
import logging, sys
from kazoo.client import KazooClient
logging.basicConfig(level=logging.CRITICAL)
address, counter, turns, patterns = sys.argv[1:]
client = KazooClient(hosts=address)
client.start()
open(counter + ".begun", "w").close()
lock = client.Lock("/pair/both", "kazoo", extra_lock_patterns=patterns.split())
for turn in range(int(turns)):
    with lock:
        with open(counter) as file:
            number = int(file.read())
        with open(counter, "w") as file:
            file.write("%d\n" % (number + 1))
client.stop()
CODE
}

# curator KIND TURNS: Adder.java
curator() {
    classes=$folder:$(ls "$jars"/curator-*.jar "$jars"/zookeeper*.jar "$jars"/netty-*.jar \
        "$jars"/slf4j-api.jar "$jars"/slf4j-nop.jar "$jars"/guava.jar "$jars"/failureaccess.jar \
        "$jars"/metrics-core.jar "$jars"/snappy-java.jar 2>/dev/null | tr '\n' ':')
    [ -f "$folder/Adder.class" ] || javac -J-XX:TieredStopAtLevel=1 -cp "$classes" -d "$folder" "$here/Adder.java" || return
    timeout 200 java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$classes" Adder "$address" "$counter" "$2" "$1"
}

# visit_ours STYLE N: in a room with two places, whose visitors have a file in it; and alone in it, each fifth time
visit_ours() {
    n=0
    while [ "$n" -lt "$2" ]; do
        [ $((n % 5)) -ne 4 ] || alone_ours "$1" || return
        mortise -C "zookeeper://$address/pair?node_style=$1&session_timeout=20s" run -w 60s --permits 2 "$1" -- sh -c '
            : >"$1/ours-$2" && sleep 0.01 && set -- "$1" "$2" $(ls "$1") && rm "$1/ours-$2" && [ $# -le 4 ] || {
                echo "interop.sh: with us in the room: $*" >&2
                exit 1
            }' sh "$counter.room" "$n" || return
        n=$((n + 1))
    done
}

alone_ours() {
    mortise -C "zookeeper://$address/pair?node_style=$1&session_timeout=20s" run -w 60s "$1" -- sh -c '
        inside=$(ls "$1" && sleep 0.05 && ls "$1") && [ -z "$inside" ] || {
            echo "interop.sh: not alone in the room: $inside" >&2
            exit 1
        }' sh "$counter.room"
}

# visit_kazoo N: by two threads of one session, with a semaphore each
visit_kazoo() {
    timeout 200 "$python" - "$address" "$counter" "$1" <<'CODE'
import logging, os, sys, threading, time
from kazoo.client import KazooClient
logging.basicConfig(level=logging.CRITICAL)
address, counter, turns = sys.argv[1:]
room = counter + ".room"
client = KazooClient(hosts=address)
client.start()
open(counter + ".begun", "w").close()
crowds = []
def visit(number):
    for turn in range(int(turns)):
        with client.Semaphore("/pair/kazoo-semaphore", "kazoo", 2):
            own = os.path.join(room, "kazoo-%d-%d" % (number, turn))
            open(own, "w").close()
            time.sleep(0.01)
            inside = os.listdir(room)
            os.unlink(own)
        if len(inside) > 2:
            crowds.append(inside)
threads = [threading.Thread(target=visit, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
client.stop()
if crowds:
    sys.exit("with kazoo in the room: %s" % crowds[0])
CODE
}

# hold_kazoo KIND: in a session that lives on until the servers end; returns when it holds
hold_kazoo() {
    mkfifo "$folder/held"
    timeout 400 "$python" - "$address" "$1" "$folder/held" <<'CODE' &
import logging, sys, time
from kazoo.client import KazooClient
logging.basicConfig(level=logging.CRITICAL)
address, kind, held = sys.argv[1:]
client = KazooClient(hosts=address)
client.start()
more = [2] if kind == "Semaphore" else []
getattr(client, kind)("/pair/" + kind, "kazoo", *more).acquire()
open(held, "w").close()
time.sleep(400)
CODE
    holders="$holders $!"
    held_kind=$1
    cat "$folder/held"
    rm "$folder/held"
}

# beside NAME STYLE: a reader of ours gets in beside it, and a writer does not
beside() {
    mortise -C "zookeeper://$address/pair?node_style=$2&session_timeout=20s" run -w 60s --shared "$held_kind" -- true
    beside_code=0
    mortise -C "zookeeper://$address/pair?node_style=$2&session_timeout=20s" run -w 300ms "$held_kind" -- true \
        2>"$folder/refused" || beside_code=$?
    if [ "$beside_code" -ne 75 ]; then
        echo "interop.sh: a writer beside $1: $beside_code: $(cat "$folder/refused")" >&2
        exit 1
    fi
    echo "$1, node_style = $2: a reader gets in, a writer waits"
}

# refused NAME STYLE WORDS: we get no lock beside it, and are told so
refused() {
    refused_code=0
    mortise -C "zookeeper://$address/pair?node_style=$2&session_timeout=20s" run -w 60s "$held_kind" -- true \
        2>"$folder/refused" || refused_code=$?
    if [ "$refused_code" -ne 78 ] || ! grep -qF "$3" "$folder/refused"; then
        echo "interop.sh: $1 beside node_style = $2: $refused_code: $(cat "$folder/refused")" >&2
        exit 1
    fi
    echo "$1, node_style = $2: refused"
}

# beside_semaphore CODE OPTIONS WORDS: we get nothing beside it, with this exit code, and are told so
beside_semaphore() {
    full_code=0
    # shellcheck disable=SC2086 # an option and its value, or nothing
    mortise -C "zookeeper://$address/pair?node_style=kazoo-semaphore&session_timeout=20s" run -w 300ms $2 \
        "$held_kind" -- true 2>"$folder/refused" || full_code=$?
    if [ "$full_code" -ne "$1" ] || ! grep -qF "$3" "$folder/refused"; then
        echo "interop.sh: $2 beside a Semaphore of kazoo: $full_code: $(cat "$folder/refused")" >&2
        exit 1
    fi
}

# meet OURS STYLE TURNS OTHER…: both sides at once, ours from the moment when the other one is connected. $failed: who failed
meet() {
    meet_ours=$1 meet_style=$2 meet_turns=$3
    shift 3
    rm -f "$counter.begun"
    "$@" &
    theirs=$!
    until [ -e "$counter.begun" ] || ! kill -0 "$theirs" 2>/dev/null; do
        sleep 0.02
    done
    failed=''
    "$meet_ours" "$meet_style" "$meet_turns" || failed=ours
    wait "$theirs" || failed="$failed theirs"
}

# pair OURS NAME STYLE TURNS OTHER…: both add to one number
pair() {
    pair_ours=$1 pair_name=$2 pair_style=$3 pair_turns=$4
    shift 4
    echo 0 >"$counter"
    meet "$pair_ours" "$pair_style" "$pair_turns" "$@"
    read -r sum <"$counter"
    if [ -n "$failed" ] || [ "$sum" -ne $((2 * pair_turns)) ]; then
        echo "interop.sh: $pair_name: $sum of $((2 * pair_turns)) $failed" >&2
        exit 1
    fi
    echo "$pair_name: $sum"
}

# room NAME STYLE TURNS OTHER…: never more than two are in it, and when one of us wants to be alone, nobody else
room() {
    room_name=$1 room_style=$2 room_turns=$3
    shift 3
    mkdir "$counter.room"
    meet visit_ours "$room_style" "$room_turns" "$@"
    [ -z "$failed" ] || {
        echo "interop.sh: $room_name: $failed" >&2
        exit 1
    }
    rmdir "$counter.room"
    echo "$room_name: never more than two"
}

# By day two thirds of the turns that there are at night.
adds=40 turns=20 visits=16
[ "${MORTISE_NIGHTLY:-0}" != 1 ] || adds=60 turns=30 visits=25
if [ -n "$python" ]; then
    pair add_ours 'kazoo, its own names' kazoo "$adds" add_kazoo "$adds" ''
    pair turns_ours 'kazoo, its read/write locks' kazoo-rw "$turns" turns_kazoo "$turns"
    hold_kazoo Lock
    refused 'a Lock of kazoo' curator 'node_style = kazoo'
    hold_kazoo ReadLock
    beside 'a ReadLock of kazoo' kazoo-rw
    beside 'a ReadLock of kazoo' kazoo
    refused 'a ReadLock of kazoo' curator 'node_style = kazoo'
    room 'kazoo, its semaphore' kazoo-semaphore "$visits" visit_kazoo "$visits"
    hold_kazoo Semaphore
    mortise -C "zookeeper://$address/pair?node_style=kazoo-semaphore&session_timeout=20s" run -w 60s --permits 2 \
        "$held_kind" -- true
    beside_semaphore 64 '--permits 3' 'permits = 2'
    beside_semaphore 75 '' 'is held by'
    echo 'a Semaphore of kazoo, node_style = kazoo-semaphore: counts, and says how many'
    refused 'a Semaphore of kazoo' kazoo 'another kind of lock'
    refused 'a Semaphore of kazoo' curator 'another kind of lock'
else
    echo 'interop.sh: left out: kazoo is not installed' >&2
fi
if [ -n "$curator" ]; then
    pair add_ours 'Curator' curator "$adds" curator mutex "$adds"
    pair turns_ours 'Curator, its read/write locks' curator-rw "$turns" curator turns "$turns"
    room 'Curator, its semaphore' curator-semaphore "$visits" curator room "$visits"
else
    echo 'interop.sh: left out: Curator is not installed' >&2
fi
if [ "${MORTISE_REQUIRE_ALL:-}" = 1 ]; then
    [ -n "$python" ] && [ -n "$curator" ]
fi
