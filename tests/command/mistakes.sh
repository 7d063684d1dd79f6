#!/bin/sh
# Mistakes of newcomers: each answer says what is wrong, where, and what to do. Those that need no server, or SQLite or Redis;
# mistakes_servers.sh has those with other servers.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"
. "$(dirname "$0")/doctor_common"
. "$(dirname "$0")/mistakes_common"

what "the configuration"
mistake "the config file is missing" 78 'cannot be read' "$DIR/none.conf" 'is the path right' -C "$DIR/none.conf" run x -- true
written "a wrong section" 'unknown section \[sqlit\]' 'mortise.conf:3' 'did you mean "sqlite"' \
    '[mortise]' 'driver = sqlite' '[sqlit]' "path = $DIR/x.db"
written "a misspelt key" 'unknown key "pth"' 'mortise.conf:4: \[sqlite\]' 'did you mean "path"' \
    '[mortise]' 'driver = sqlite' '[sqlite]' "pth = $DIR/x.db"
written "a key before any section" 'comes before any' 'mortise.conf:1' '\[section\]' 'driver = sqlite'
written "a key given twice" 'given twice' 'mortise.conf:3' 'also in line 2' '[mortise]' 'ttl = 5s' 'ttl = 6s'
written "a ttl of 0" 'ttl = "0"' 'mortise.conf:2: \[mortise\]' 'expected a duration such as .*50ms to 24h' '[mortise]' 'ttl = 0'
written "a ttl without a unit" 'ttl = "30"' 'mortise.conf:2' 'such as 500ms, 30s or 2m' '[mortise]' 'ttl = 30'
written "a comment behind a value" "'#' in a value" 'mortise.conf:2' "begins with ';'" '[mortise]' 'ttl = 5s # short'
# shellcheck disable=SC2016 # it is for mortise
written "a variable that is not set" 'NO_SUCH_NAME' 'mortise.conf:4' 'is not set in the environment' \
    '[mortise]' 'driver = redis' '[redis]' 'servers = ${NO_SUCH_NAME}'
written "an unknown driver" 'no module "consul"' 'mortise.conf:2' 'install its package, or use one .*sqlite' '[mortise]' 'driver = consul'
written "a misspelt driver" 'no module "sqlit"' 'mortise.conf:2' 'did you mean "sqlite"' '[mortise]' 'driver = sqlit'
written "a renewal that is too rare" 'renew_every' 'mortise.conf' 'at most a third of ttl' '[mortise]' 'ttl = 3s' 'renew_every = 2s'
url "an unknown scheme" 78 'no module "consul"' 'consul://' 'install its package, or use one' consul://host/
if "$BIN" drivers etcd >/dev/null 2>&1; then
    url "a host without //" 78 'a host is written etcd://HOST' 'etcd:db1: a host' 'and a path etcd:/PATH' etcd:db1
fi
url "a / in a URL's password" 78 'must be a number' 'redis URL' "in a password.*'/' %2F" redis://u:pa/ss@host
written "a wrong phase" 'phase = "nwe"' 'mortise.conf:6: \[migrate\]' 'expected old, both or new' \
    '[mortise]' 'driver = migrate' '[migrate]' 'from = sqlite:a' 'to = sqlite:b' 'phase = nwe' '[sqlite:a]' "path = $DIR/a.db" \
    '[sqlite:b]' "path = $DIR/b.db"
sed -i 's/nwe/new/' "$DIR/mortise.conf"
mistake "a phase that is skipped" 78 'phase new is not admitted' '\[sqlite:b\]' 'mortise migrate plan' \
    -C "$DIR/mortise.conf" run x -- true
sed -i 's/to = sqlite:b/to = sqlite:a/' "$DIR/mortise.conf"
mistake "a migration to itself" 78 'same section' 'mortise.conf: \[migrate\]' '`from` and `to`' -C "$DIR/mortise.conf" run x -- true

what "sqlite"
url "a folder that is missing" 78 'No such file' "$DIR/none" 'make the directory, or set another path' "sqlite:$DIR/none/locks.db"
url "a relative path" 78 'expected the absolute path' 'path: "locks.db"' 'absolute path of a file' sqlite:locks.db
echo "no database, but long enough that SQLite looks at it" >"$DIR/junk.db"
url "a file that is no database" 69 'no SQLite database' "$DIR/junk.db" 'use another path' "sqlite:$DIR/junk.db"
url "a folder in place of a file" 78 'is not a file' "$DIR" 'set another path' "sqlite:$DIR"
if [ "$(id -u)" -ne 0 ]; then
    : >"$DIR/read.db" && chmod 400 "$DIR/read.db"
    url "a file that cannot be written" 78 'must be writable' "$DIR/read.db" 'for uid' "sqlite:$DIR/read.db"
fi

what "the command"
long=$(printf 'n%.0s' $(seq 600))
usage="see .mortise run --help"
mistake "a misspelt command" 64 'unknown command "rnu"' 'rnu' 'did you mean "run"' rnu x -- true
mistake "a name that is too long" 64 'longer than' 'name of the lock' '512 bytes' run "$long" -- true
mistake "an empty name" 64 'is empty' 'name of the lock' "$usage" run '' -- true
mistake "no command" 64 'no command given' 'run:' "$usage" run x
mistake "a command that is not there" 127 'No such file' '"no-such-command"' 'is it installed, and in PATH' run x -- no-such-command
: >"$DIR/plain"
mistake "a command that is no program" 126 'Permission denied' "$DIR/plain" 'chmod \+x' run x -- "$DIR/plain"
mistake "a wait without a unit that it knows" 64 'is not a time' '-w "5 min"' 'such as 500ms, 30s or 2m' run -w '5 min' x -- true
mistake "a wrong exit code" 64 'is not an exit code' '-E "300"' 'from 0 to 255' run -E 300 x -- true
mistake "a ttl of 0 in the command line" 64 'is not between' '--ttl "0"' '50 ms and 1 d' run --ttl 0 x -- true
mistake "permits of 0" 64 'is not a number' '--permits "0"' 'from 1' run --permits 0 x -- true
mistake "permits beyond the maximum" 64 'is not a number' '--permits "99999999999"' "$usage" run --permits 99999999999 x -- true
mistake "a break of a lock that nobody holds" 1 'nobody holds' '"free"' 'mortise list' break free --token 5
mistake "a break without a token" 64 'token is missing' 'break' 'mortise status NAME' break free
hold "${N}held"
mistake "a break with a former token" 1 'changed hands' "${N}held" 'with token [0-9]+, not 5' break "${N}held" --token 5
mistake "a lock that another holds" 75 'is held by' "\"${N}held\".*pid [0-9]+" 'not waited for' run -n "${N}held" -- true
mistake "a run inside of a run of the same name" 75 'would wait for itself' "${N}twice" 'use another name' \
    run "${N}twice" -- "$BIN" run "${N}twice" -- true
let_go "$HOLDER"

what "permits and kinds"
hold "${N}three" --permits 3
mistake "another number of permits" 64 'permits = 5 was asked for' "${N}three" 'must give the same' run -n --permits 5 "${N}three" -- true
mistake "shared without a number" 64 'permits = 0 was asked for' "${N}three" 'must give the same' run -n -s "${N}three" -- true
mistake "exclusive, while others share" 75 'is held by' "${N}three" '1 of 3 permits' run -n "${N}three" -- true
let_go "$HOLDER"

what "a program"
if command -v python3 >/dev/null; then
    cat >"$DIR/program.py" <<END
import ctypes, os, sys
library = ctypes.CDLL(os.path.join(os.environ["MORTISE_BUILD_DIR"], "lib", "libmortise.so"))
client, lease, error = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(4096)
def say(status):
    print("mortise:", error.raw[64:].split(b"\0")[0].decode(), file=sys.stderr)
    return status
library.mortise_open(None, ctypes.byref(client), error)
what = sys.argv[1]
library.mortise_acquire(client, b"program", None, ctypes.byref(lease), error)
if what == "twice":
    library.mortise_release(lease, error)
    say(library.mortise_release(lease, error))
elif what == "closed":
    library.mortise_close(client, error)
    say(library.mortise_acquire(client, b"program", None, ctypes.byref(lease), error))
elif what == "many":
    say(library.mortise_acquire(client, b"x" * 600, None, ctypes.byref(lease), error))
elif what == "lost":
    import subprocess, re
    status = subprocess.run([os.environ["BIN"], "status", "--json", "program"], capture_output=True, text=True).stdout
    token = re.search(r'"token":"?(\d+)', status).group(1)
    subprocess.run([os.environ["BIN"], "break", "program", "--token", token], capture_output=True)
    say(library.mortise_release(lease, error))
END
    export BIN
    program() { # TEXT WHAT WHERE DO ARGUMENT
        python3 "$DIR/program.py" "$5" 2>"$DIR/err"
        answers "$1" "$2" "$3" "$4"
    }
    program "a lease that is released twice" 'released before' 'lease' 'use it no more' twice
    program "a lease that was lost" 'lost before' '"program"' 'may have overlapped' lost
    program "a client that is closed" 'was closed' 'client' 'open another one' closed
    program "a name that is too long" 'at most' 'name of a lock' '[0-9]+ bytes' many
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$MORTISE_SOURCE_DIR/bindings/python python3 -c 'import mortise' 2>"$DIR/err"
    answers "the Python package without its library" '_native|no library for this Python' 'the package mortise' 'install its wheel'
fi

what "redis"
if start redis redis; then
    here=127.0.0.1:$PORT
    url "a wrong port" 69 'Connection refused' '127.0.0.1:1:' 'does a server run there' redis://127.0.0.1:1
    url "a port that is none" 78 'port' 'redis URL|70000' 'from 1 to 65535' redis://127.0.0.1:70000
    url "a password that the server does not have" 69 'without any password' "$here" 'remove it from the configuration' "redis://:pw@$here"
    url "a database that is not there" 69 'DB index' "$here" 'set database' "redis://$here/99"
    ask redis ACL SETUSER poor on '>pw' '~*' '&*' +@all -eval -evalsha -script
    ask redis ACL SETUSER keys on '>pw' '~other*' '&*' +@all
    url "a wrong password" 69 'WRONGPASS' "$here" 'Check username and password' "redis://poor:no@$here"
    url "a user who may not run scripts" 69 'NOPERM' "$here" 'set atomicity = watch' "redis://poor:pw@$here"
    url "a user without rights on the keys" 69 'NOPERM' "$here" 'give this right to the user' "redis://keys:pw@$here"
    ask redis CONFIG SET maxmemory 1
    url "a server that is full" 69 'OOM' "$here" 'raise maxmemory' "redis://$here"
    ask redis CONFIG SET maxmemory 0
    ask redis REPLICAOF 127.0.0.1 1
    url "a read-only replica" 69 'replica' "$here" 'name the primary, or all servers' "redis://$here"
    ask redis REPLICAOF NO ONE
    ask redis CONFIG SET requirepass secret
    url "no password" 69 'NOAUTH' "$here" 'set password_file' "redis://$here"
    url "one node for redlock" 78 'one node is no majority' "\[redlock\] nodes = \"$here\"" 'use the driver redis' "redlock://$here"
    url "two nodes for redlock" 78 'an odd number is needed' '\[redlock\] nodes' 'odd number' "redlock://$here,127.0.0.1:1"
    url "redlock without its servers" 69 '0 of 3 nodes' '127.0.0.1:[123]:' 'does a server run there' \
        redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3
fi

mistakes_end
