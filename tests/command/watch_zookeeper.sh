#!/bin/sh
# `mortise watch` on ZooKeeper: its thread calls the driver and ends after the client. ZooKeeper's library keeps a buffer for
# each thread and frees it when the thread ends; if the library was unloaded before, the process dies.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
servers=$(dirname "$0")/../servers.sh
folder=$(mktemp -d "${TMPDIR:-/tmp}/mortise-watch.XXXXXX") || exit 99
values=$(sh "$servers" start zookeeper "$folder" "guard=$$")
started=$?
[ $started -eq 0 ] || {
    rm -rf "$folder"
    exit $started
}
MORTISE_CONFIG=zookeeper://127.0.0.1:$(sed -n 's/^PORT=//p' <<<"$values")
export MORTISE_CONFIG
. "$(dirname "$0")/common"
trap 'cleanup; [ "$BASHPID" != $$ ] || { sh "$servers" end zookeeper "$folder"; rm -rf "$folder"; }' EXIT

what "a thread that outlives the client"
for number in TERM INT; do
    "$BIN" watch --interval 50ms "${N}w" >"$DIR/watch" 2>"$DIR/err" &
    watcher=$!
    hold "${N}w"
    yes "the holder is seen" until_true holds "$DIR/watch" "	held	${N}w	[^	]+	$HOLDER	"
    let_go "$HOLDER"
    kill -$number $watcher
    same_code "$number ends it" $((128 + $(kill -l $number))) $watcher
done

end
