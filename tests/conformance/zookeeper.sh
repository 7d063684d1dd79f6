#!/bin/sh
# zookeeper.sh VERB FOLDER - the hooks of the conformance suite for ZooKeeper: see hooks.sh.
# shellcheck disable=SC2034 # KIND
KIND=zookeeper

# shellcheck source=zookeeper_left.sh
. "${0%/*}/zookeeper_left.sh"

left() {
    left_on_port "$(sed -n 's/^PORT=//p' "$FOLDER/values")"
}

# shellcheck source=hooks.sh
. "${0%/*}/hooks.sh"
