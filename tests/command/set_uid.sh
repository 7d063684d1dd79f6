#!/bin/sh
# A set-uid copy of the command, run by another user: that user's environment may not choose a config, a module or a
# database (R11). And root with an environment that sudo -E has kept: no module of that user is loaded.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

OWNER=4711   # of the copy
CALLER=65534 # who runs it
[ "$(id -u)" -eq 0 ] || skip "only root can make a set-uid program of another user"

as_caller() {
    setpriv --reuid=$CALLER --regid=$CALLER --clear-groups --inh-caps=-all "$@"
}

# A folder where set-uid works, and that the caller can reach: /tmp may be mounted nosuid, a home may be closed.
usable() {
    chmod 755 "$1"
    cp "$(command -v id)" "$1/id" && cp "$BIN" "$1/mortise" && cp "$BIN" "$1/plain" || return 1
    chown "$OWNER:$OWNER" "$1/id" "$1/mortise" && chmod 4755 "$1/id" "$1/mortise" || return 1
    [ "$(as_caller "$1/id" -u)" = "$OWNER" ] && as_caller "$1/plain" --version >"$DIR/out" 2>&1
}

place=
for base in "$DIR" "${MORTISE_BUILD_DIR:-$DIR}"; do
    chmod 755 "$DIR"
    place=$(mktemp -d "$base/set-uid.XXXXXX") || continue
    usable "$place" && break
    rm -rf "$place"
    place=
done
[ -n "$place" ] || skip "no folder where a set-uid program changes its user, and finds its library: $(cat "$DIR/out")"
trap '[ "$BASHPID" != $$ ] || rm -rf "$place"; cleanup' EXIT

evil=$place/evil own=$place/own
mkdir -p "$evil/modules" "$evil/state" "$evil/.config/mortise" "$own"
from=$("$BIN" drivers sqlite --json | sed -n 's/.*"path":"\([^"]*\)".*/\1/p')
cp "$from" "$evil/modules/sqlite.so"
printf '%s\n' '[mortise]' "driver = sqlite" '[sqlite]' "path = $evil/locks.db" >"$evil/mortise.conf"
cp "$evil/mortise.conf" "$evil/.config/mortise/mortise.conf"
chown -R "$CALLER:$CALLER" "$evil"
chown "$OWNER:$OWNER" "$own"

# hostile VARIABLE… -- COMMAND…: run by the caller, with these variables of the hostile environment
hostile() {
    local variables=()
    while [ "$1" != -- ]; do
        variables+=("$1")
        shift
    done
    shift
    as_caller env -u MORTISE_CONFIG -u MORTISE_MODULE_PATH -u XDG_CONFIG_HOME HOME="$evil" XDG_STATE_HOME="$evil/state" \
        "${variables[@]}" "$@" >"$DIR/out" 2>&1
}

nothing_of_it() {
    no "nothing of the caller's is used: $(head -n 1 "$DIR/out")" grep -Fq "$evil" "$DIR/out"
    same "nothing is made in the caller's folder" "" "$(find "$evil" -user $OWNER)"
}

what "without set-uid the environment is followed"
hostile MORTISE_CONFIG="$evil/mortise.conf" MORTISE_MODULE_PATH="$evil/modules" -- "$place/plain" check
same "check" 0 $?
has_line "the config" "$DIR/out" "$evil/mortise\.conf"
has_line "the module" "$DIR/out" "$evil/modules/sqlite\.so"
hostile -- "$place/plain" check
has_line "the config in the home folder" "$DIR/out" "$evil/\.config/mortise/mortise\.conf"
hostile XDG_RUNTIME_DIR=/dev/null -- timeout 20 "$place/plain" witness
has_line "the folder of the witness" "$DIR/out" '/dev/null/mortise'
rm -rf "$evil/"locks.db*

what "a set-uid program"
hostile MORTISE_CONFIG="$evil/mortise.conf" MORTISE_MODULE_PATH="$evil/modules" -- "$place/mortise" check
nothing_of_it
hostile XDG_CONFIG_HOME="$evil/.config" -- "$place/mortise" check
nothing_of_it
hostile XDG_RUNTIME_DIR="$evil" -- timeout 20 "$place/mortise" witness
nothing_of_it
hostile MORTISE_MODULE_PATH="$evil/modules" -- "$place/mortise" -C "sqlite:$own/locks.db" check
same "with a database of its own it works" 0 $?
nothing_of_it
same "and this one is made by its owner" $OWNER "$(stat -c %u "$own/locks.db")"
hostile "MORTISE_MODULE_PATH=$evil/modules" -- "$place/plain" -C "sqlite:$evil/locks.db" check
hostile -- "$place/mortise" -C "sqlite:$evil/locks.db" check
same "a database of the caller's is refused" 78 $?

there() {
    "$BIN" drivers "$1" >/dev/null 2>&1 || {
        printf 'not checked: there is no driver %s\n' "$1"
        return 1
    }
}

what "the libraries of drivers, which read the environment themselves"
if there postgres && command -v python3 >/dev/null; then
    python3 - "$DIR/port" "$DIR/reached" <<'PYTHON' &
import os, socket, sys
with socket.create_server(("127.0.0.1", 0)) as server, open(sys.argv[2], "a") as reached:
    with open(sys.argv[1] + ".new", "w") as file:
        print(server.getsockname()[1], file=file)
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    while True:
        link = server.accept()[0]
        print("a connection", file=reached, flush=True)
        link.close()
PYTHON
    yes "a server of the caller's listens" until_true filled "$DIR/port"
    libpq=("PGHOSTADDR=127.0.0.1" "PGPORT=$(cat "$DIR/port")" PGSSLMODE=disable)
    database='postgres://app:secret@db.example/locks?unreachable_timeout=1s'
    hostile "${libpq[@]}" -- "$place/plain" -C "$database" check
    yes "postgres: without set-uid it is reached" filled "$DIR/reached"
    : >"$DIR/reached"
    hostile "${libpq[@]}" -- "$place/mortise" -C "$database" check
    same "postgres: a set-uid program does not open it" 78 $?
    has_line "and says why" "$DIR/out" 'must not be set in a set-uid program: libpq'
    no "and makes no connection" filled "$DIR/reached"
    hostile -- "$place/mortise" -C "$database" check
    same "postgres: HOME is such a variable, too" 78 $?
    hostile -- env -u HOME "$place/mortise" -C 'postgres://app@127.0.0.1:1/locks?sslmode=disable&unreachable_timeout=100ms' check
    same "postgres: without these variables it opens" 69 $?
fi
if there mysql; then
    hostile MARIADB_PLUGIN_DIR="$evil" -- "$place/mortise" -C 'mysql://app@127.0.0.1:1/locks?tls=no' check
    same "mysql: a set-uid program cannot open it with the caller's plugins" 78 $?
    has_line "and says why" "$DIR/out" 'must not be set in a set-uid program'
    hostile MARIADB_TLS_DISABLE_PEER_VERIFICATION=1 -- "$place/mortise" -C 'mysql://app@127.0.0.1:1/locks?tls=no' check
    same "mysql: nor while the caller says that no certificate is checked" 78 $?
    hostile MYSQL_PWD=x MYSQL_TCP_PORT=2 MYSQL_UNIX_PORT="$evil/socket" -- \
        "$place/mortise" -C 'mysql://app@127.0.0.1:1/locks?tls=no&unreachable_timeout=100ms' check
    same "mysql: with variables that it does not obey, it opens" 69 $?
    has_line "and goes where the config says" "$DIR/out" '127\.0\.0\.1:1[: ]'
fi

what "root with the environment of a user, as after sudo -E"
refused() { # TEXT PATTERN
    same "$1: refused" 78 $?
    has_line "and says why" "$DIR/out" "$2"
}
sed -i "s|^driver|module_path = $evil/modules\n&|" "$evil/mortise.conf"
chown "$CALLER" "$evil/mortise.conf"
env -u MORTISE_MODULE_PATH MORTISE_CONFIG="$evil/mortise.conf" "$place/plain" check >"$DIR/out" 2>&1
refused "a module path in the user's config" "module_path is refused: the file belongs to user $CALLER"
MORTISE_CONFIG="sqlite:$DIR/locks.db" MORTISE_MODULE_PATH="$evil/modules" "$place/plain" check >"$DIR/out" 2>&1
refused "the user's modules" 'modules are not loaded from a path that others can replace'
"$place/plain" -C "sqlite:$evil/locks.db" check >"$DIR/out" 2>&1
refused "the user's database" "belongs to uid $CALLER"

end
