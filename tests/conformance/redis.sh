#!/bin/sh
# redis.sh VERB FOLDER - the hooks of the conformance suite for Redis: see hooks.sh, redis_left.sh.
# shellcheck disable=SC2034 # KIND
KIND=redis

# shellcheck source=redis_left.sh
. "${0%/*}/redis_left.sh"

left() {
    if grep -q '^CLUSTER=' "$FOLDER/values"; then left_on_all; else left_on_server; fi
}

# shellcheck source=hooks.sh
. "${0%/*}/hooks.sh"
