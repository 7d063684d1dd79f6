# zookeeper_left.sh - left_on_port prints what clients have left in a ZooKeeper server. Sourced by hooks.
# shellcheck shell=sh

# left_on_port PORT: nodes that end with a session, of whichever: contenders, and what clients beat with.
left_on_port() {
    "$(command -v /usr/bin/python3 || echo python3)" -I -S -c '
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
' "$1"
}
