#!/bin/sh
# redis_zookeeper.sh VERB FOLDER - the hooks for a Redis and a ZooKeeper side by side (servers/pair.sh): see hooks.sh,
# redis_left.sh, zookeeper_left.sh.
# shellcheck disable=SC2034 # KIND
KIND=pair

# shellcheck source=redis_left.sh
. "${0%/*}/redis_left.sh"
# shellcheck source=zookeeper_left.sh
. "${0%/*}/zookeeper_left.sh"

left() {
    left_on_server | sed 's/^/redis: /'
    left_on_port "$(sed -n 's/^PORT2=//p' "$FOLDER/values")" >"$FOLDER/left.zookeeper" || return
    sed 's/^/zookeeper: /' "$FOLDER/left.zookeeper"
}

# shellcheck source=hooks.sh
. "${0%/*}/hooks.sh"
