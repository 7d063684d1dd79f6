#!/bin/sh
# zookeeper.sh VERB FOLDER - the hooks of the conformance suite for ZooKeeper: see hooks.sh.
# shellcheck disable=SC2034 # KIND
KIND=zookeeper

# Nodes that end with a session, of whichever: contenders, and what clients beat with.
left() {
    for left_port in $(sed -n 's/^PORT[0-9]*=//p' "$FOLDER/values" | head -n 1); do
        python3 -c '
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5) as server:
    server.settimeout(5)
    server.sendall(b"dump")
    text = b""
    while data := server.recv(65536):
        text += data
nodes = text.decode(errors="replace").split("Ephemerals", 1)[-1]
for line in nodes.splitlines():
    if line.strip().startswith("/"):
        print("node", line.strip())
' "$left_port"
    done
}

# shellcheck source=hooks.sh
. "$(dirname -- "$0")/hooks.sh"
