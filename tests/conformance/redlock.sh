#!/bin/sh
# redlock.sh VERB FOLDER - the hooks of the conformance suite for Redlock: see hooks.sh, redis_left.sh.
# shellcheck disable=SC2034 # KIND
KIND=redis

# shellcheck source=redis_left.sh
. "${0%/*}/redis_left.sh"

left() {
    left_on_all
}

# shellcheck source=hooks.sh
. "${0%/*}/hooks.sh"
