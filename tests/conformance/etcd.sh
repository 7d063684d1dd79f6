#!/bin/sh
# etcd.sh VERB FOLDER - the hooks of the conformance suite for etcd: see hooks.sh.
# shellcheck disable=SC2034 # KIND
KIND=etcd

# What clients have left: every key that ends with a session, of whichever, and its key.
left() {
    ask get --prefix '' --keys-only | grep -v -e '^$' -e '/%tokens$' -e '/%records/' | sed 's/^/key /'
    ask lease list | grep -v -e '^found ' -e '^$' | sed 's/^/lease /'
}

# shellcheck source=hooks.sh
. "$(dirname -- "$0")/hooks.sh"
