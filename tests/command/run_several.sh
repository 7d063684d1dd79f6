#!/bin/sh
# `mortise run` with several names: all or none, one wait for all, lost if one is lost.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

code() { # runs the command with these arguments; its code in GOT, stderr in $DIR/err
    "$BIN" "$@" >"$DIR/out" 2>"$DIR/err" </dev/null
    GOT=$?
}
a=${N}a b=${N}b c=${N}c

what "words"
same "several names before --" in "$("$BIN" run "$c" "$a" "$b" -- echo in)"
same "options between them" in "$("$BIN" run "$c" -w 5s "$a" --ttl 20s "$b" -- echo in)"
same "-c" 3 "$("$BIN" run -c "$a" "$b" -- 'echo $((1 + 2))')"
same "a name that begins with a dash, behind --" in "$("$BIN" run -- -n "$a" -- echo in)"
same "without -- the second word is the command" in "$("$BIN" run "$a" echo in)"
code run "$a" "$b" "$a" -- touch "$DIR/ran"
same "a name twice" 64 $GOT
has_line "said" "$DIR/err" "^mortise: run: \"$a\" is named twice"
code run "$a" '' -- touch "$DIR/ran"
same "an empty name" 64 $GOT
code run "$a" "$b" --
same "no command" 64 $GOT
# shellcheck disable=SC2046 # numbers
code run $(seq 257) -- touch "$DIR/ran"
same "more names than can be" 64 $GOT
# shellcheck disable=SC2046
same "as many as can be" 256 "$("$BIN" run $(seq 256) -- sh -c 'echo $MORTISE_TOKENS' | wc -w)"

what "the environment"
"$BIN" run "$c" "$a" "$b" -- sh -c "env; '$BIN' status '$c' '$a' '$b'" >"$DIR/env"
has_line "the first name" "$DIR/env" "^MORTISE_NAME=$c\$"
tokens=$(sed -n 's/^MORTISE_TOKENS=//p' "$DIR/env")
same "the tokens, in the order of the names" "$tokens" "$(grep "	held	" "$DIR/env" | cut -f 8 | xargs)"
same "the first one" "${tokens%% *}" "$(sed -n 's/^MORTISE_TOKEN=//p' "$DIR/env")"
same "one name: its token" same "$("$BIN" run "$a" -- sh -c '[ "$MORTISE_TOKENS" = "$MORTISE_TOKEN" ] && echo same')"
for name in "$a" "$b" "$c"; do
    yes "$name is free afterwards" is_free "$name"
done

what "none of them, if one is held"
hold "$b"
code run -n "$c" "$a" "$b" -- touch "$DIR/ran"
same "-n" 75 $GOT
has_line "says which, and by whom" "$DIR/err" "^mortise: \"$b\" is held by .* \(pid $HOLDER\) for .*; not waited for\$"
yes "the others are free" eval 'is_free "$a" && is_free "$c"'
begin=$(ms)
code run -w 300ms "$c" "$a" "$b" -- touch "$DIR/ran"
took=$(($(ms) - begin))
same "-w 300ms" 75 $GOT
has_line "said" "$DIR/err" "^mortise: \"$b\" is held by .* \(pid $HOLDER\) for .*; gave up after 300 ms\$"
yes "it waited that long ($took ms)" [ $took -ge 300 ]
yes "and not much longer" [ $took -lt 10000 ]
yes "the others are free" eval 'until_true is_free "$a" && until_true is_free "$c"'
code run -n -E 3 "$a" "$b" -- touch "$DIR/ran"
same "-E" 3 $GOT
"$BIN" run "$c" "$a" "$b" -- echo mine >"$DIR/waited" 2>&1 &
waiter=$!
until_true someone_waits "$b" || wrong "no waiter was seen"
same "while it waits, larger names are free" in "$("$BIN" run "$c" -- echo in)"
let_go "$HOLDER"
same_code "it waits, and gets all" 0 $waiter
same "its command ran" mine "$(cat "$DIR/waited")"

what "a signal ends the wait"
for number in INT TERM; do
    hold "$b"
    "$BIN" run "$a" "$b" -- touch "$DIR/ran" 2>"$DIR/err" &
    waiter=$!
    until_true someone_waits "$b" || wrong "no waiter was seen"
    begin=$(ms)
    kill -$number $waiter
    same_code "$number" $((128 + $(kill -l $number))) $waiter
    soon "$begin" 10000 "at once"
    yes "nothing is left" eval 'until_true is_free "$a" && until_true nobody_waits "$b"'
    let_go "$HOLDER"
done
no "no command ran" [ -e "$DIR/ran" ]

what "two runs that want the same names in another order"
for i in 1 2 3 4 5 6 7 8; do
    if [ $((i % 2)) = 0 ]; then names="$a $b $c"; else names="$c $b $a"; fi
    # shellcheck disable=SC2086 # words
    "$BIN" run -w 60s $names -- sh -c "mkdir $DIR/alone && rmdir $DIR/alone && echo done" &
done >"$DIR/done" 2>"$DIR/err"
yes "all get their turn, alone" until_true lines_in "$DIR/done" 8
same "nothing was said" "" "$(cat "$DIR/err")"

what "one of them is lost"
"$BIN" run --ttl 2s "$a" "$b" "$c" -- sh -c "touch $DIR/runs; exec sleep 1000" 2>"$DIR/err" &
run=$!
until_true is_held "$c" && until_true test -e "$DIR/runs"
"$BIN" break "$b" --token "$(json "$b" token)" 2>/dev/null
same_code "the command ends" 76 $run
has_line "said" "$DIR/err" "^mortise: \"$a\", \"$b\", \"$c\": the lock was lost; the command is being ended"
yes "the others are released" eval 'until_true is_free "$a" && until_true is_free "$c"'

what "a run inside of a run"
"$BIN" run "$a" "$b" -- "$BIN" run "$b" -- touch "$DIR/ran" 2>"$DIR/err"
same "of one of the names" 75 $?
has_line "said" "$DIR/err" "^mortise: \"$b\" is held by the mortise run that started this one"
"$BIN" run "$a" "$b" -- "$BIN" run "$c" -- "$BIN" run "${N}d" "$b" -- touch "$DIR/ran" 2>"$DIR/err"
same "with another one in between" 75 $?
same "other names are other locks" in "$("$BIN" run "$a" "$b" -- "$BIN" run "$c" "${N}d" -- echo in)"
no "no command ran" [ -e "$DIR/ran" ]

what "stopped and continued"
"$BIN" run "$a" "$b" -- sh -c "echo \$\$ >$DIR/pid; exec sleep 1000" 2>"$DIR/err" &
run=$!
until_true filled "$DIR/pid" || wrong "it does not run"
kill -STOP $run
until_true stopped $run
"$BIN" break "$b" --token "$(json "$b" token)" 2>/dev/null
kill -CONT $run
same_code "it asks about each of them" 76 $run

what "the wrapper is killed"
"$BIN" run --ttl 10m "$a" "$b" "$c" -- sh -c "echo \$\$ >$DIR/pid2; exec sleep 1000" 2>"$DIR/err" &
run=$!
until_true filled "$DIR/pid2" || wrong "it does not run"
kill -KILL $run
yes "the command is ended" until_true gone "$(cat "$DIR/pid2")"
yes "the keeper releases all locks" eval 'until_true is_free "$a" && until_true is_free "$b" && until_true is_free "$c"'

if can_freeze; then
    what "the backend does not answer"
    "$BIN" run --ttl 4s "$a" "$b" -- sh -c "echo \$\$ >$DIR/pid3; exec sleep 1000" 2>"$DIR/err" &
    run=$!
    until_true filled "$DIR/pid3" || wrong "it does not run"
    freeze
    yes "the command is ended" until_true gone "$(cat "$DIR/pid3")"
    thaw
    same_code "the lock was lost" 76 $run
fi

what "shared"
cat >"$DIR/sim.conf" <<EOF
[mortise]
driver = sim
EOF
same "several shared locks" in "$("$BIN" -C "$DIR/sim.conf" run --shared x y -- echo in)"
same "permits of several names" in "$("$BIN" -C "$DIR/sim.conf" run --permits 2 x y -- echo in)"

end
