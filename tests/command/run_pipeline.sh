#!/bin/sh
# `mortise run` on a terminal, as one of several processes of a job: runs inside of runs, ^C, and who reads when.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"
. "$(dirname "$0")/terminal"

[ -n "${MORTISE_REFUSE:-}" ] || skip "MORTISE_REFUSE is not set: the library of refuse.c"
ENDED=6 DONE=9

once() { echo "until [ -e $DIR/$1 ]; do sleep 0.01; done"; }

has_terminal() { # PID of a leader of a group
    local stat
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    # shellcheck disable=SC2086 # words: state, parent, group, session, terminal, the group in its foreground
    set -- "$1" ${stat##*) }
    [ "$7" = "$1" ]
}

reaped() { # PID
    ! [ -e "/proc/$1" ]
}

runs_on() { # PID
    ! stopped "$1"
}

sleeps() { # PID
    stat_of "$1" && [ "$STATE" = S ]
}

has_read_all() { # PID: no signal is pending
    grep -Eq '^ShdPnd:.0*$' "/proc/$1/status"
}

open_shell 100 30
shell=$(tm display-message -p -t t '#{pane_pid}')

what "^C for a run inside of a run, where the command does not have the terminal"
cat >"$DIR/script" <<END
$BIN run ${N}b -- sh -c 'echo begun >&2; exec sleep 1000'
touch $DIR/went.on
END
fresh
line "\$m run ${N}a -- bash $DIR/script | cat"
sees "a script inside of a run" '^begun'
type_keys C-c
sees "is ended by it" '^(\^C)?\[130\]'
no "its next line is not reached" [ -e "$DIR/went.on" ]
fresh
line "for i in 1 2 3; do echo | \$m run ${N}a -- \$m run ${N}b -- sh -c 'echo begun; exec sleep 1000'; done; echo af''ter"
sees "a loop around both runs" '^begun'
type_keys C-c
sees "is ended by it as a whole" '^(\^C)?\[130\]'
no "its next round did not begin" shows '^after'
same "once only" 1 "$(pane | grep -c '^begun')"

what "a second ^C, when the command has caught the first one and was given the terminal"
cat >"$DIR/asks" <<END
trap 'caught=yes' INT
echo \$\$ >$DIR/asks.pid
echo begun >&2
while [ -z "\$caught" ]; do sleep 0.05; done
trap - INT
read answer </dev/tty
END
cat >"$DIR/counts" <<END
trap 'echo INT >>$DIR/counted' INT
until [ -e $DIR/enough ]; do sleep 0.05; done
echo over
END
fresh
line "echo | \$m run ${N}a -- bash $DIR/asks | bash $DIR/counts"
sees "the command runs" '^begun'
type_keys C-c
yes "it gets the terminal when it asks" until_true has_terminal "$(cat "$DIR/asks.pid")"
until_true lines_in "$DIR/counted" 1
type_keys C-c
yes "the second one ends the command" until_true gone "$(cat "$DIR/asks.pid")"
yes "and the others of the job get it too" until_true lines_in "$DIR/counted" 2
touch "$DIR/enough"
sees "the job ends" '^(\^C)*over'

what "a run inside of a run, and another one of the pipeline, read one after the other"
fresh
line "\$m run ${N}a -- \$m run ${N}b -- sh -c 'echo as''ks >&2; read x; echo first \$x >&2; touch $DIR/read.1; $(once read.2); read x; echo third \$x >&2' |
sh -c '$(once read.1); echo as''ks too; read x </dev/tty; echo second \$x; touch $DIR/read.2; cat'; echo o''ver"
sees "the inner command asks" '^asks'
line "1"
sees "and reads" '^first 1'
sees "then the other one asks" '^asks too'
line "2"
sees "and reads" '^second 2'
line "3"
sees "then the inner command again" '^third 3'
sees "the pipeline ends" '^over'
no "nothing was stopped" shows 'Stopped'

what "another one of the pipeline reads when the command, which had the terminal, has just ended"
cat >"$DIR/reads" <<END
echo \$\$ >$DIR/reads.pid
$(once ended)
read x </dev/tty
echo got \$x
END
mkfifo "$DIR/go.on" "$DIR/go.home"
fresh
line "LD_PRELOAD=$MORTISE_REFUSE MORTISE_REFUSE_READ='$ENDED $DIR/go.on $DONE $DIR/go.home' \
\$m run ${N}a -- sh -c 'echo \$\$ >$DIR/first.pid; echo as''ks >&2; read x; echo first \$x >&2' | sh $DIR/reads"
sees "the command asks" '^asks'
line "1"
sees "and reads" '^first 1'
yes "it ends" until_true reaped "$(cat "$DIR/first.pid")"
touch "$DIR/ended"
yes "the other one reads while the wrapper does not know yet" until_true stopped "$(cat "$DIR/reads.pid")"
# shellcheck disable=SC2034 # it stays open
exec {writer}<>"$DIR/go.on"
yes "it is continued" until_true runs_on "$(cat "$DIR/reads.pid")"
# The shell is woken before that one reads again, to hear that it goes on. If it heard of the wrapper's end first, because it got no
# processor in between, it would believe that the job is stopped: bash does.
yes "and reads again" until_true sleeps "$(cat "$DIR/reads.pid")"
until_true sleeps "$shell" || wrong "the shell has not heard that it goes on"
# shellcheck disable=SC2034 # as above
exec {writer_home}<>"$DIR/go.home"
line "2"
sees "and gets what is typed" '^got 2'
no "nothing was stopped" shows 'Stopped'

what "a wrapper waits for its lock, and gets the signal for a read by another process of its group"
hold "${N}w"
fresh
line "\$m run ${N}w -- echo got the l''ock"
until_true someone_waits "${N}w" || wrong "no waiter was seen"
waiter=$(children_of "$shell")
kill -TTIN "$waiter"
yes "it reads it" until_true has_read_all "$waiter"
let_go "$HOLDER"
sees "it goes on, because it has the terminal" '^got the lock'
no "nothing was stopped" shows 'Stopped'

close_terminal
end
