#!/bin/sh
# redlock.sh VERB FOLDER - the hooks of the conformance suite for Redlock: see hooks.sh, redis_left.sh.
# shellcheck disable=SC2034 # KIND
KIND=redis

# shellcheck source=redis_left.sh
. "$(dirname -- "$0")/redis_left.sh"

# On each of the nodes.
left() {
    for node in $(sed -n 's/^PORT\([0-9]*\)=.*/\1/p' "$FOLDER/values"); do
        only=only=$node
        left_on_server | sed "s/^/node $node: /"
    done
}

# shellcheck source=hooks.sh
. "$(dirname -- "$0")/hooks.sh"
