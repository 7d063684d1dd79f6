#!/bin/sh
# hooks.sh VERB FOLDER - runs the server for the conformance suite. start prints what replaces @PORT@ in the config; left
# prints what is still held at the end; freeze and thaw stop and continue the server, as if its machine hung.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
verb=${1:?VERB} folder=${2:?FOLDER}
[ ! -f "$folder/server" ] || pid=$(sed -n 's/^PID=//p' "$folder/server")
case $verb in
start)
    # the server ends when the suite does, however that ends
    python3 "$here/server.py" "$folder/server" "$PPID" </dev/null >"$folder/server.log" 2>&1 &
    pid=$!
    until [ -f "$folder/server" ]; do
        kill -0 "$pid" 2>/dev/null || {
            cat "$folder/server.log" >&2
            exit 1
        }
        sleep 0.05
    done
    cat "$folder/server"
    ;;
left) python3 "$here/server.py" list "$(sed -n 's/^PORT=//p' "$folder/server")" ;;
freeze) kill -STOP "$pid" ;;
thaw) kill -CONT "$pid" ;;
end) kill "$pid" ;;
*) exit 64 ;;
esac
