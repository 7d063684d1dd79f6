#!/bin/sh
# command.sh PROGRAM TAKER - mortise-conformance as a command. The hooks of an author are called only if there is a directory for
# them: one whose `end` does rm -rf "$2/data" must never get an empty one. And what a URL may contain is what a file may.
set -eu
program=$1 taker=$2
folder=$(mktemp -d "${TMPDIR:-/tmp}/mortise-conformance.XXXXXX")
trap 'rm -rf -- "$folder"' EXIT
unset MORTISE_REQUIRE_ALL

fail() {
    cat "$folder/log" >&2
    printf 'conformance.command: %s\n' "$1" >&2
    exit 1
}

# run CODE WORD…: the program, which must exit with CODE
run() {
    expected=$1 code=0
    shift
    "$program" "$@" "taker=$taker" >"$folder/log" 2>&1 || code=$?
    [ "$code" -eq "$expected" ] || fail "$* exits with $code, expected: $expected"
}

cat >"$folder/hooks.sh" <<END
#!/bin/sh
echo "\$1 \$2" >>"$folder/called"
[ "\$1" != start ] || exit 77
END
chmod +x "$folder/hooks.sh"
: >"$folder/called"
run 1 "$folder/typo.conf" "hooks=$folder/hooks.sh"
run 64 sqlite:@DIR@/locks.db "hooks=$folder/hooks.sh" nonsense=1
[ ! -s "$folder/called" ] || fail "nothing was started, but the hooks were called: $(cat "$folder/called")"
run 77 sqlite:@DIR@/locks.db "hooks=$folder/hooks.sh"
[ "$(sed 's: /.*/mortise-test-.*: DIR:' "$folder/called")" = "$(printf 'start DIR\nleft DIR\nend DIR')" ] ||
    fail "the hooks were called so: $(cat "$folder/called")"

run 0 'sqlite:@DIR@/locks.db?busy_timeout=@TIMEOUT@' 'only=the stack'
