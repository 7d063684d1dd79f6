#!/bin/sh
# etcd.sh VERB FOLDER - the hooks of the conformance suite for etcd: see hooks.sh.
# shellcheck disable=SC2034 # KIND
KIND=etcd

# What clients have left: every contender. Leases without one, and their sessions' keys, end by themselves.
left() {
    keys=$(ask get --prefix '' --keys-only) || return
    printf '%s\n' "$keys" | sed -e '/^$/d' -e '/%tokens$/d' -e '/%records\//d' -e '/%sessions\//d' -e 's/^/key /'
}

# shellcheck source=hooks.sh
. "${0%/*}/hooks.sh"
