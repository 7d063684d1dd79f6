#!/bin/sh
# examples.sh - the example programs do what they promise. Needs MORTISE_BUILD_DIR.
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
    # shellcheck disable=SC2254 # it is a pattern
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
expect '300 reads beside 100 changes: 0 wrong, at most [123] readers at once' "$examples/readers" "$where"
expect '*was refused; 90 are left' "$examples/fenced_update" "$where" "sqlite:$work/goods.db"
# Its first process cannot open the locks: the other one ends too.
code=0
said=$(timeout 20 "$examples/fenced_update" sqlite:/none/locks.db "sqlite:$work/goods2.db" 2>&1) || code=$?
if [ "$code" != 1 ] || [ "${said#*the first process: it did not get the lock}" = "$said" ]; then
    echo "examples: without locks, fenced_update ended with $code and printed \"$said\"" >&2
    exit 1
fi
# at a tick of the loop, which does not come while a call waits
for loop in "$examples"/loop_*; do
    expect '1000 locks held at once, and at a tick of the loop 1000 passed on; one thread' "$loop" "$where"
done
[ -x "$examples/loop_libuv" ] || [ "${MORTISE_REQUIRE_ALL:-0}" != 1 ] || {
    echo "examples: the loop for libuv was not built" >&2
    exit 1
}

# A killed worker leaves no half line, because no line crosses a page. With half a line it ends, and says so.
mkfifo "$work/said"
"$examples/migration/worker" "$where" "$work/numbers" >"$work/said" &
worker=$!
exec 3<"$work/said"
read -r said <&3 || said=nothing
kill "$worker" || true
if ! wait "$worker" || [ "$said" != ready ] || grep -qvE '^.{127}$' "$work/numbers"; then
    echo "examples: the worker said $said, and wrote $(head -n 1 "$work/numbers")" >&2
    exit 1
fi
printf '{"event":"write",' >"$work/torn"
if said=$("$examples/migration/worker" "$where" "$work/torn" 2>&1 >/dev/null) ||
    [ "$said" != "worker: the store: reading: half a line" ]; then
    echo "examples: with half a line, the worker said \"$said\"" >&2
    exit 1
fi

# An old CMake is told of before anything is installed.
mkdir "$work/old"
printf '%s\n' '#!/bin/sh' 'echo cmake version 3.22.1' >"$work/old/cmake"
chmod +x "$work/old/cmake"
if PATH="$work/old:$PATH" sh "$MORTISE_SOURCE_DIR/examples/quickstart.sh" >"$work/quickstart" 2>&1 ||
    [ "$(cat "$work/quickstart")" != "CMake 3.22.1 is too old: Mortise needs 3.25, as in Debian 12, Ubuntu 24.04, or later." ]; then
    echo "examples: with CMake 3.22.1, quickstart.sh printed \"$(cat "$work/quickstart")\"" >&2
    exit 1
fi

# The same with PostgreSQL for both, where there is a server. Its folder is closed by mktemp; the server,
# which does not run as root, opens it to itself.
servers=$MORTISE_SOURCE_DIR/tests/servers.sh
if [ -e "$MORTISE_BUILD_DIR/lib/mortise/postgres.so" ]; then
    mkdir "$work/server"
    if values=$(sh "$servers" start postgres "$work/server" "guard=$$"); then
        port=$(printf '%s\n' "$values" | sed -n 's/^PORT=//p')
        url=postgresql://mortise@127.0.0.1:$port/mortise
        expect '*was refused; 90 are left' "$examples/fenced_update" "$url" "$url"
        sh "$servers" end postgres "$work/server"
    elif [ "$?" -ne 77 ] || [ "${MORTISE_REQUIRE_ALL:-0}" = 1 ]; then
        exit 1
    fi
fi
