#!/bin/sh
# Shared locks and permits on the command line: run --shared, run --permits, and what status, list, watch and break show.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

code() { # runs the command with these arguments; its code in GOT, stderr in $DIR/err
    "$BIN" "$@" >"$DIR/out" 2>"$DIR/err" </dev/null
    GOT=$?
}

what "usage"
for wrong in 0 -1 x '' 4294967296; do
    code run --permits "$wrong" "${N}a" -- touch "$DIR/ran"
    same "--permits \"$wrong\"" 64 $GOT
done
has_line "said" "$DIR/err" '^mortise: run: --permits "4294967296" is not a number from 1; see'
code run --permits
same "--permits without a number" 64 $GOT

what "check and require"
"$BIN" check >"$DIR/check"
has_line "check says which kinds there are" "$DIR/check" '^locks +ok +exclusive'
cat >"$DIR/sim.conf" <<EOF
[mortise]
driver = sim
require = shared, permits
EOF
code -C "$DIR/sim.conf" check
same "require = shared, permits: a driver that has both" 0 $GOT
has_line "said" "$DIR/out" '^locks +ok +exclusive, shared, permits$'
code -C "$DIR/sim.conf" drivers sim
has_line "drivers shows them" "$DIR/out" '^sim	driver	[^	]*	[^	]*	[a-z,]*shared,permits	'
same "run --permits" in "$("$BIN" -C "$DIR/sim.conf" run --permits 3 x -- echo in)"
same "run -s" in "$("$BIN" -C "$DIR/sim.conf" run -s x -- echo in)"
printf '[sim]\nwithout = permits\n' >>"$DIR/sim.conf"
code -C "$DIR/sim.conf" check
same "one that has only shared locks" 78 $GOT
has_line "said" "$DIR/out" '^config +wrong .*require: driver "sim" does not promise "permits"'
sed -i '/^require/d' "$DIR/sim.conf"
code -C "$DIR/sim.conf" check
has_line "check says what is missing" "$DIR/out" '^locks +ok +exclusive and shared; no permits$'
code -C "$DIR/sim.conf" run --permits 3 x -- touch "$DIR/ran"
same "run --permits" 69 $GOT
has_line "said" "$DIR/err" '^mortise: driver sim: no permits here'
sed -i 's/= permits/= shared/' "$DIR/sim.conf"
code -C "$DIR/sim.conf" check
has_line "without any" "$DIR/out" '^locks +ok +exclusive; no shared locks, no permits$'
code -C "$DIR/sim.conf" run --shared x -- touch "$DIR/ran"
same "run --shared" 69 $GOT
has_line "said" "$DIR/err" '^mortise: driver sim: no shared locks here'
no "the command never ran" [ -e "$DIR/ran" ]

what "an exclusive lock"
hold "${N}e"
"$BIN" status "${N}e" >"$DIR/out"
same "mode, holders, permits" "exclusive	1	-" "$(cut -f 10-12 "$DIR/out")"
same "--json" 'exclusive 1 null' "$(json "${N}e" mode) $(json "${N}e" holders) $(json "${N}e" permits)"
let_go "$HOLDER"

end
