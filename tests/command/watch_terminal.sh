#!/bin/sh
# `mortise watch` on a real terminal: it draws in place, is resized, stopped and ended, and restores the terminal.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"
. "$(dirname "$0")/terminal"

hold "${N}one"
one=$HOLDER
open_shell 110 20
line "echo before"
until_true shows '^before'
line "\$m watch --interval 50ms $N"
sees "a head line" '^NAME +STATE +HOST +PID +PROGRAM +SINCE +UNTIL +TOKEN'
sees "the lock and its holder" "^${N}one +held(, witness)? +[^ ]+ +$one "
no "the screen before is out of sight" shows '^before'
hold "${N}two"
two=$HOLDER
sees "another one appears" "^${N}two +held(, witness)? +[^ ]+ +$two "
let_go "$one"
until_true eval "! shows '^${N}one '" && ok "the released one goes" || wrong "it stays: $(pane)"
sees "the count" ' 1 held'

if "$BIN" check | grep -q '^locks .* shared, permits'; then
    hold "${N}s" --permits 5
    shared=$HOLDER
    sees "of a shared lock, how many hold it" "^${N}s +shared 1/5(, witness)? +[^ ]+ +$shared "
    no "no column for that" shows 'HOLDERS'
    let_go "$shared"
fi

what "resized"
tm resize-window -t t -x 60 -y 10
until_true eval '[ "$(pane | wc -L)" -le 60 ]' || wrong "lines are too long"
sees "narrower: cut, not wrapped" "^${N}two +held"
tm resize-window -t t -x 130 -y 30
sees "wider again" 'UNTIL +TOKEN +QUEUE'
for i in $(seq 15); do
    "$BIN" run "${N}z$i" -- sleep 1000 &
done
tm resize-window -t t -x 110 -y 12
sees "more than fits: says how many" '^and [0-9]+ more'

what "no flicker: a frame is one write, and nothing is blanked first"
tm pipe-pane -t t "cat >>$DIR/raw"
until_true eval '[ "$(stat -c %s "$DIR/raw" 2>/dev/null || echo 0)" -gt 5000 ]'
tm pipe-pane -t t
same "the screen is never erased as a whole" 0 "$(grep -c $'\033\\[2J' "$DIR/raw")"

what "stopped and continued"
type_keys C-z
sees "the shell is back" 'Stopped'
sees "with the screen as it was" '^before'
line "fg"
sees "drawn anew" '^NAME +STATE'

what "ended by q"
type_keys q
sees "the shell is back" '^before'
line "echo code \$?"
sees "its code" '^code 0'

what "the terminal is as it was"
# looked at before the shell's line editor sets it anew
line "clear"
line "\$m watch $N; stty -a | tr ' ;' '\n\n' | grep -cx -e icanon -e echo"
sees "drawn" '^NAME +STATE'
type_keys q
sees "lines are edited and echoed" '^2$' # not the head line of watch at nine in the evening

what "ended by ^C"
line "clear"
line "\$m watch $N"
sees "drawn" '^NAME +STATE'
type_keys C-c
sees "the shell is back" '^\[130\]' # not before: ^C throws away what has been typed
line "echo code \$?"
sees "its code" '^code 130'

let_go "$two"
close_terminal
end
