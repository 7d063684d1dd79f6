#!/bin/sh
# examples.sh - the example programs do what they say. Needs MORTISE_BUILD_DIR.
set -eu
examples=$MORTISE_BUILD_DIR/examples
work=$(mktemp -d "${TMPDIR:-/tmp}/mortise-examples.XXXXXX")
trap 'rm -rf -- "$work"' EXIT

# expect PATTERN COMMAND…: it succeeds and prints what matches.
expect() {
    pattern=$1
    shift
    printed=$("$@") || {
        echo "examples: $* failed and printed: $printed" >&2
        exit 1
    }
    case $printed in
    $pattern) ;;
    *)
        echo "examples: $* printed \"$printed\", expected: $pattern" >&2
        exit 1
        ;;
    esac
}

where=sqlite:$work/locks.db
expect 'hello, alone; my token is [1-9]*' "$examples/hello" "$where"
expect '2000 of 2000 (* microseconds per acquire)' "$examples/counter" "$where" "$work/number"
expect '* of 2000 (* additions lost)' "$examples/counter" --without-lock "$where" "$work/number"
