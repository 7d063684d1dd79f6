#!/bin/sh
# `mortise run` under a shell with job control, on a real terminal: ^C, ^Z, fg, bg, reading, loops.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"
. "$(dirname "$0")/terminal"

beats() { # FILE: it goes on being written
    local before
    before=$(cat "$1" 2>/dev/null)
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.05
        [ "$(cat "$1" 2>/dev/null)" != "$before" ] && return 0
    done
    return 1
}

# Of a command: its wrapper, the parent of its parent.
wrapper_of() {
    parent_of "$(parent_of "$1")"
}

# The trap: bash takes an INT for handled when the program it waits for ends by itself at that moment.
beat="trap \"exit 130\" INT; while :; do date +%s%N >$DIR/beat.new; mv $DIR/beat.new $DIR/beat; sleep 0.01; done"

runs_on() { # FILE with a pid
    ! stopped "$(cat "$DIR/$1")"
}

shows_alone() { # PATTERN: on the terminal of the session without a shell
    tm capture-pane -p -t alone | grep -Eq -- "$1"
}

open_shell 100 30

what "^C"
fresh
line "\$m run ${N}a -- sh -c 'echo begun; sleep 1000'"
sees "the command runs" '^begun'
type_keys C-c
sees "^C ends the command; the shell is told 128+2" '^\[130\]'
yes "the lock is free" until_true is_free "${N}a"
fresh
line "\$m run ${N}a -- bash -c 'trap \"echo caught; exit 4\" INT; echo begun; while :; do sleep 0.05; done'"
sees "a command that catches it" '^begun'
type_keys C-c
sees "is told once" '^caught|\^Ccaught'
sees "and its own code counts" '^\[4\]'
fresh
line "for i in 1 2 3; do \$m run ${N}a -- sh -c 'echo begun; sleep 1000'; done; echo after"
sees "a loop" '^begun'
type_keys C-c
sees "is ended by ^C as a whole" '^\[130\]'
no "its next round did not begin" shows '^after'
same "once only" 1 "$(pane | grep -c '^begun')"
fresh
cat >"$DIR/script" <<END
$BIN run ${N}a -- sh -c 'echo begun; sleep 1000'
echo the script goes on
END
line "bash $DIR/script"
sees "a script" '^begun'
type_keys C-c
sees "is ended by ^C too" '^\[130\]'
no "its next line is not reached" shows 'the script goes on'

what "a script has the terminal again for its next line"
cat >"$DIR/script" <<END
$BIN run ${N}a -- sh -c 'read x; echo the command got \$x'
echo next
read x
echo the script got \$x
END
fresh
line "bash $DIR/script"
until_true is_held "${N}a"
line "one"
sees "the command reads" '^the command got one'
until_true shows '^next'
line "two"
sees "then the script" '^the script got two'

what "^C while waiting"
hold "${N}h"
fresh
line "\$m run ${N}h -- true"
until_true someone_waits "${N}h" || wrong "no waiter was seen"
sees "after a second it says who holds it" "^mortise: waiting for \"${N}h\", held by .*pid $HOLDER, sh\)"
type_keys C-c
sees "^C leaves the queue" '^(\^C)?\[130\]'
yes "its place is gone" until_true nobody_waits "${N}h"
cat >"$DIR/script" <<END
echo \$\$ >$DIR/script.pid
$BIN run ${N}h -- true
echo the script goes on
END
fresh
line "bash $DIR/script"
until_true someone_waits "${N}h" || wrong "no waiter was seen"
until_true filled "$DIR/script.pid"
type_keys C-c
sees "^C ends a script that waits, too" '^(\^C)?\[130\]'
no "its next line is not reached" shows 'the script goes on'
yes "its place is gone" until_true nobody_waits "${N}h"
fresh
line "echo | \$m run ${N}a -- bash $DIR/script"
until_true someone_waits "${N}h" || wrong "no waiter was seen"
type_keys C-c
sees "and the script of a run in a pipeline, whose own run waits" '^(\^C)?\[130\]'
no "its next line is not reached" shows 'the script goes on'
yes "its place is gone" until_true nobody_waits "${N}h"
yes "the lock of the outer run is free" until_true is_free "${N}a"
let_go "$HOLDER"

what "^C while a run opens its configuration"
mkfifo "$DIR/never.conf" # nobody writes it
rm "$DIR/script.pid"
cat >"$DIR/script" <<END
echo \$\$ >$DIR/script.pid
$BIN -C $DIR/never.conf run ${N}a -- true
echo the script goes on
END
has_keeper() { # of the run in the script
    local run
    run=$(children_of "$(cat "$DIR/script.pid")" | head -n 1)
    [ -n "$run" ] && [ -n "$(keeper_of "$run")" ]
}
fresh
line "bash $DIR/script"
until_true filled "$DIR/script.pid"
until_true has_keeper || wrong "the run does not begin"
type_keys C-c
sees "^C ends the script" '^(\^C)?\[130\]'
no "its next line is not reached" shows 'the script goes on'

what "^Z and fg"
fresh
line "\$m run --ttl 20s ${N}a -- bash -c '$beat'"
until_true beats "$DIR/beat" || wrong "the command does not start"
type_keys C-z
sees "the shell sees its job stopped" 'Stopped'
no "the command stands still" beats "$DIR/beat"
yes "the lock is held" is_held "${N}a"
line "bg"
yes "bg lets it go on" until_true beats "$DIR/beat"
line "fg"
type_keys C-z
until_true shows 'Stopped.*run' || wrong "not stopped again"
line "echo; fg"
yes "fg lets it go on" until_true beats "$DIR/beat"
type_keys C-c
sees "and ^C reaches it" '^(\^C)?\[130\]'
yes "the lock is free" until_true is_free "${N}a"

what "^Z for longer than the ttl"
fresh
line "\$m run --ttl 6s ${N}a -- bash -c '$beat'"
until_true beats "$DIR/beat" || wrong "the command does not start"
type_keys C-z
sees "stopped" 'Stopped'
until_true is_free "${N}a" || wrong "the lock does not run out"
last=$(cat "$DIR/beat")
line "fg"
sees "continued, it says so" '^mortise: ".*": the lock (could not be renewed in time|was lost)'
sees "and ends with 76" '^\[76\]'
same "the command did not take another step" "$last" "$(cat "$DIR/beat")"

what "^Z when the command has ended, and what it started goes on"
fresh
line "\$m run --ttl 20s ${N}a -- sh -c 'sleep 1000 & echo \$! >$DIR/left; sleep 1000 & echo \$! >$DIR/left.2; exit 6'"
sees "it says so" 'is still held: the command has ended'
type_keys C-z
sees "the shell sees its job stopped" 'Stopped'
yes "the process that is left is stopped" until_true stopped "$(cat "$DIR/left")"
yes "all of it" until_true stopped "$(cat "$DIR/left.2")"
line "fg"
yes "fg lets it go on" until_true runs_on left
yes "all of it" until_true runs_on left.2
kill -TERM "$(cat "$DIR/left")" "$(cat "$DIR/left.2")"
sees "the code is the command's" '^\[6\]'

what "the same without a shell that could continue it"
tm new-session -d -s alone "$BIN" run --ttl 20s "${N}z" -- \
    sh -c "bash -c 'trap \"touch $DIR/continued; exit\" CONT; touch $DIR/ready; while :; do sleep 0.01; done' & until [ -e $DIR/ready ]; do sleep 0.01; done"
until_true shows_alone 'is still held: the command has ended' || wrong "it does not say so: $(tm capture-pane -p -t alone)"
tm send-keys -t alone C-z
yes "it goes on" until_true [ -e "$DIR/continued" ]
yes "the lock is free" until_true is_free "${N}z"

what "reading from the terminal"
# What is typed before the command has the terminal may be taken by the shell's line editor.
reader="echo \\\$\\\$ >$DIR/reader; echo ask; read x; echo got \\\$x"
fresh
line "\$m run ${N}a -- sh -c \"$reader\""
sees "in the foreground" '^ask'
line "hello"
sees "it reads" '^got hello'
fresh
rm -f "$DIR/reader"
line "\$m run ${N}a -- sh -c \"$reader\" &"
until_true filled "$DIR/reader"
yes "in the background it is stopped by it" until_true stopped "$(cat "$DIR/reader")"
until_true stopped "$(wrapper_of "$(cat "$DIR/reader")")" || wrong "the wrapper does not stop"
line ""
sees "and the shell says so, as of any job" 'Stopped'
line "fg"
until_true runs_on reader
line "again"
sees "fg, and it reads" '^got again'
fresh
line "\$m run ${N}a -- sh -c \"sleep 0.4; $reader\" & sleep 0.1; fg"
sees "brought to the foreground while it runs" '^ask'
line "third"
sees "it reads as well" '^got third'

what "a full-screen program, a shell, a pipe"
fresh
line "\$m run ${N}a -- bash --noprofile --norc -i"
sees "an interactive shell has the terminal" 'bash-[0-9.]+[#$]'
line "sh -c 'echo sleeping; exec sleep 1000'" # what shows it is the foreground job itself: ^C cannot come before it is
until_true shows '^sleeping'
type_keys C-c
line "echo inner \$?"
sees "with job control of its own" '^inner 130'
line "exit 6"
sees "it ends" '^\[6\]'
fresh
line "echo through a pipe | \$m run ${N}a -- cat | tr a-z A-Z"
sees "in the middle of a pipe" '^THROUGH A PIPE'
fresh
line "\$m run ${N}a -- stty size"
sees "it sees the terminal's size" '^30 100'
tm resize-window -t t -x 90 -y 25 2>/dev/null
fresh
line "\$m run ${N}a -- bash -c 'trap \"echo resized\" WINCH; trap \"exit 130\" INT; echo begun; for i in \$(seq 1000); do sleep 0.01; done'"
sees "running" '^begun'
tm resize-window -t t -x 95 -y 28
sees "and is told when it changes" '^resized'
type_keys C-c
sees "ended" '^(\^C)?\[130\]'

what "other processes of the job read the terminal"
# They are in the wrapper's group, and are stopped with it if they read while the command has the terminal.
once() { echo "until [ -e $DIR/$1 ]; do sleep 0.01; done"; }
fresh
line "\$m run ${N}a -- sh -c 'touch $DIR/runs.1; $(once read.1)' | sh -c '$(once runs.1); echo a''sks; read x </dev/tty; echo got \$x; touch $DIR/read.1'; echo o''ver"
sees "the next one of a pipeline asks" '^asks'
line "hi"
sees "and gets what is typed" '^got hi'
sees "the pipeline ends" '^over'
no "nothing was stopped" shows 'Stopped'
cat >"$DIR/script" <<END
$BIN run ${N}a -- sh -c 'touch $DIR/runs.2; $(once read.2)' &
$(once runs.2)
echo the script asks
read x
echo got \$x
touch $DIR/read.2
wait
END
fresh
line "bash $DIR/script; echo o''ver"
sees "a script with a run in the background asks" '^the script asks'
line "you"
sees "and gets what is typed" '^got you'
sees "the script ends" '^over'
no "nothing was stopped" shows 'Stopped'
fresh
line "\$m run ${N}a -- sh -c 'echo a''sks >&2; read x; echo got \$x' | cat"
sees "a command in a pipeline asks" '^asks'
line "there"
sees "and gets what is typed" '^got there'
fresh
line "\$m run ${N}a -- \$m run ${N}b -- sh -c 'echo a''sks >&2; read x; echo got \$x' | cat"
sees "also a run inside of a run" '^asks'
line "inside"
sees "gets what is typed" '^got inside'
no "nothing was stopped" shows 'Stopped'
fresh
line "\$m run ${N}a -- sh -c 'echo a''sks >&2; read x; echo first \$x >&2; touch $DIR/read.3; $(once read.4); read x; echo third \$x >&2' |
sh -c '$(once read.3); echo a''sks too; read x </dev/tty; echo second \$x; touch $DIR/read.4; cat'; echo o''ver"
sees "one after the other: the command" '^asks'
line "1"
sees "reads first" '^first 1'
sees "then another one of the pipeline" '^asks too'
line "2"
sees "reads" '^second 2'
line "3"
sees "then the command again" '^third 3'
sees "the pipeline ends" '^over'
no "nothing was stopped" shows 'Stopped'
fresh
line "for i in 1 2 3; do echo | \$m run ${N}a -- sh -c 'echo begun; sleep 1000'; done; echo af''ter"
sees "a loop" '^begun'
type_keys C-c
sees "is ended by ^C as a whole, although the command does not have the terminal" '^(\^C)?\[130\]'
no "its next round did not begin" shows '^after'
same "once only" 1 "$(pane | grep -c '^begun')"

what "the shell has the terminal back, as it was"
fresh
line "\$m run ${N}a -- sh -c 'kill -9 \$PPID; sleep 1000'"
sees "after the keeper was killed" '^\[137\]'
line "stty -a | tr ' ;' '\n\n' | grep -cx -e icanon -e echo"
sees "lines are edited and echoed" '^2'
line "echo asks''; read x; echo got \$x"
sees "the shell no longer reads the line itself" '^asks'
line "typed"
sees "what is typed is read" '^got typed'

what "without a config file"
# Where root would have its database, and a system's config, there is nothing to see in it.
alone='env'
if [ "$(id -u)" -eq 0 ]; then
    alone="unshare -m $DIR/alone"
    cat >"$DIR/alone" <<'END'
#!/bin/sh
mount -t tmpfs tmpfs /var/lib && exec "$@"
END
    chmod +x "$DIR/alone"
fi
if ! $alone true; then
    printf 'left out: no mount namespace can be made here, and the database of root is not for tests\n'
else
    by_default="env -u MORTISE_CONFIG HOME=$DIR XDG_CONFIG_HOME=$DIR/none XDG_STATE_HOME=$DIR/state $alone"
    fresh
    line "$by_default \$m run x -- \$m run y -- echo do''ne"
    sees "it runs" '^done'
    same "it says once whose locks these are" 1 "$(pane | grep -c "no config file: using this user's own database .SQLite")"
    # shellcheck disable=SC2086 # words
    same "not where nobody is there to read it" "" "$($by_default "$BIN" run x -- true 2>&1)"
    fresh
    line "\$m run ${N}a -- echo do''ne"
    sees "with a config file" '^done'
    no "nothing is said" shows 'no config file'
fi

close_terminal
end
