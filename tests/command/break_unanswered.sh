#!/bin/sh
# mortise break whose answer does not come: done or not, nobody knows, and the command says so. A proxy passes each request,
# and from the one with the token on no reply.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

# shellcheck disable=SC2034 # for common
LIMIT=20

for program in redis-server redis-cli python3; do
    command -v $program >/dev/null || skip "no $program"
done

servers() {
    sh "$MORTISE_SOURCE_DIR/tests/servers.sh" "$@"
}
mkdir "$DIR/server"
PORT=$(servers start redis "$DIR/server" "guard=$$" | sed -n 's/^PORT=//p')
export MORTISE_CONFIG=redis://127.0.0.1:"$PORT" # without the proxy

deaf_after() { # TEXT: PROXY is the port of a proxy that loses all replies once a request has the text in it
    rm -f "$DIR/proxy"
    python3 - "$PORT" "$1" "$DIR/proxy" <<'PYTHON' &
import os, socket, sys, threading

server, text, port_file = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3]
deaf = threading.Event()

def forward(source, to, is_reply):
    seen = b""
    try:
        while data := source.recv(65536):
            if not is_reply:
                seen = (seen + data)[-100000:]
                if text in seen:
                    deaf.set()
            if not (is_reply and deaf.is_set()):
                to.sendall(data)
    except OSError:
        pass
    if not deaf.is_set():
        to.close()

listener = socket.create_server(("127.0.0.1", 0))
with open(port_file + ".new", "w") as file:
    file.write("%d\n" % listener.getsockname()[1])
os.rename(port_file + ".new", port_file)
while True:
    client = listener.accept()[0]
    behind = socket.create_connection(("127.0.0.1", server))
    threading.Thread(target=forward, args=(client, behind, False), daemon=True).start()
    threading.Thread(target=forward, args=(behind, client, True), daemon=True).start()
PYTHON
    proxy=$!
    until_true filled "$DIR/proxy" || wrong "no proxy"
    PROXY=$(cat "$DIR/proxy")
}

# The server knows the driver's scripts from here on: the request alone does it.
hold "${N}first"
"$BIN" break "${N}first" --token "$(json "${N}first" token)" 2>"$DIR/err"
same "with an answer" 0 $?
let_go "$HOLDER"

unanswered() { # TEXT SETTINGS
    local token
    what "$1"
    hold "${N}a" --ttl 60s
    token=$(json "${N}a" token)
    deaf_after "$token"
    "$BIN" -C "redis://127.0.0.1:$PROXY?$2" break "${N}a" --token "$token" >"$DIR/out" 2>"$DIR/err"
    same "the code" 69 $?
    has_line "it may have been done" "$DIR/err" \
        "^mortise: it is unknown whether \"${N}a\" was broken; .mortise status. shows it"
    yes "it was" until_true is_free "${N}a"
    kill "$proxy"
    let_go "$HOLDER"
}
unanswered "the call's time is over" "unreachable_timeout=1s&command_timeout=30s"
has_line "said" "$DIR/err" 'break: the backend did not answer in time'
unanswered "the driver's time is over" "unreachable_timeout=30s&command_timeout=500ms"

what "a server that cannot be reached at all"
servers kill redis "$DIR/server"
"$BIN" -C "$MORTISE_CONFIG?unreachable_timeout=1s" break "${N}a" --token 7 >"$DIR/out" 2>"$DIR/err"
same "the code" 69 $?
no "nothing is unknown" holds "$DIR/err" 'unknown whether'
end
