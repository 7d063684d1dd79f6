#!/bin/sh
# What the command of `mortise run` gets: environment, descriptors, arguments; and runs inside runs.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

what "the environment"
"$BIN" run "${N}a" -- env >"$DIR/env"
has_line "the name" "$DIR/env" "^MORTISE_NAME=${N}a\$"
has_line "the owner" "$DIR/env" '^MORTISE_OWNER=[0-9a-f]{32}$'
has_line "the driver" "$DIR/env" '^MORTISE_DRIVER=[a-z]+$'
has_line "the token" "$DIR/env" '^MORTISE_TOKEN=[0-9]+$'
has_line "the lease's descriptor" "$DIR/env" '^MORTISE_LEASE_FD=[0-9]+$'
token=$(sed -n 's/^MORTISE_TOKEN=//p' "$DIR/env")
next=$("$BIN" run "${N}a" -- sh -c 'echo $MORTISE_TOKEN')
yes "the next holder's token is larger ($token, $next)" [ "$next" -gt "$token" ]
"$BIN" run "${N}a" -- sh -c "$BIN"' status --json $MORTISE_NAME; echo $MORTISE_TOKEN $MORTISE_OWNER' >"$DIR/inside"
read -r token owner < <(tail -n 1 "$DIR/inside")
has_line "the backend says the same token" "$DIR/inside" "\"token\":\"$token\""
has_line "and owner" "$DIR/inside" "\"owner\":\"$owner\""
MORTISE_NAME=other MORTISE_TOKEN=1 MORTISE_OWNER=somebody MORTISE_DRIVER=none MORTISE_LEASE_FD=99 \
    "$BIN" run "${N}a" -- env >"$DIR/env"
same "outer values are replaced" 0 "$(grep -Ec '^MORTISE_(NAME=other|TOKEN=1$|OWNER=somebody|DRIVER=none|LEASE_FD=99)' "$DIR/env")"
"$BIN" run "${N}a" -- env >"$DIR/env"
env | grep -Ev '^(_|SHLVL|MORTISE_[A-Z_]*)=' | sort >"$DIR/env.outside"
grep -Ev '^(_|SHLVL|MORTISE_[A-Z_]*)=' "$DIR/env" | sort >"$DIR/env.inside"
yes "everything else is as it was" cmp -s "$DIR/env.outside" "$DIR/env.inside"

what "MORTISE_LEASE_FD"
"$BIN" run "${N}a" -- bash -c '[ -p /proc/self/fd/$MORTISE_LEASE_FD ]'
same "a pipe" 0 $?
"$BIN" run "${N}a" -- bash -c 'read -r -t 0.2 -u $MORTISE_LEASE_FD; [ $? -gt 128 ]'
same "that is silent while the lock is held" 0 $?

what "stdin, stdout, stderr and other descriptors are inherited"
same "through a pipe" "three words here" "$(echo three words here | "$BIN" run "${N}a" -- cat)"
"$BIN" run "${N}a" -- sh -c 'echo out; echo err >&2' >"$DIR/out" 2>"$DIR/err"
same "stdout" out "$(cat "$DIR/out")"
same "stderr" err "$(cat "$DIR/err")"
same "descriptor 7" seven "$(echo seven | "$BIN" run "${N}a" -- cat /dev/fd/7 7<&0 </dev/null)"
"$BIN" run "${N}a" -- sh -c 'ls /proc/self/fd' >"$DIR/fds"
sh -c 'ls /proc/self/fd' >"$DIR/fds.outside"
same "one more than without us: the lease" $(($(wc -l <"$DIR/fds.outside") + 1)) "$(wc -l <"$DIR/fds")"
same "all of stdin is the command's" 1000000 \
    "$(head -c 1000000 /dev/zero | "$BIN" run "${N}a" -- wc -c)"
"$BIN" run "${N}a" -- true <&- >&- 2>&-
same "with all three closed it runs as well" 0 $?

what "words"
same "arguments as they are" '[a b][][*][--json][-n]' \
    "$("$BIN" run "${N}a" -- printf '[%s]' 'a b' '' '*' --json -n)"
same "without --" '[-n]' "$("$BIN" run "${N}a" printf '[%s]' -n)"
same "-c NAME TEXT" "one two" "$("$BIN" run -c "${N}a" 'echo one; echo two' | xargs)"
same "NAME -c TEXT, as flock(1) has it" 3 "$("$BIN" run "${N}a" -c 'echo $((1 + 2))')"
same "-c NAME -- TEXT" 3 "$("$BIN" run -c "${N}a" -- 'echo $((1 + 2))')"
same "options behind the name" 4 "$("$BIN" run "${N}a" -w 5s --ttl 10s -- echo 4)"
same "-C before and behind the command's name" 55 \
    "$("$BIN" -C "$MORTISE_CONFIG" run "${N}a" -- printf 5
       env MORTISE_CONFIG=/none "$BIN" run -C "$MORTISE_CONFIG" "${N}a" -- printf 5)"

what "a run inside of a run with the same name"
begin=$(ms)
"$BIN" run "${N}a" -- "$BIN" run "${N}a" -- touch "$DIR/ran" 2>"$DIR/err"
same "does not wait for itself" 75 $?
yes "at once" [ $(($(ms) - begin)) -lt 8000 ]
has_line "and says so" "$DIR/err" "^mortise: \"${N}a\" is held by the mortise run that started this one"
"$BIN" run "${N}a" -- "$BIN" run "${N}b" -- "$BIN" run "${N}a" -- touch "$DIR/ran" 2>"$DIR/err"
same "with another one in between" 75 $?
"$BIN" run "${N}a" -- "$BIN" run -E 9 "${N}a" -- touch "$DIR/ran" 2>"$DIR/err"
same "-E holds for it" 9 $?
no "the command never ran" [ -e "$DIR/ran" ]
same "another name is another lock" in "$("$BIN" run "${N}a" -- "$BIN" run "${N}b" -- echo in)"
hold "${N}c"
MORTISE_NAME="${N}c" MORTISE_OWNER=00000000000000000000000000000000 \
    "$BIN" run -w 200ms "${N}c" -- true 2>"$DIR/err"
has_line "another's lock is waited for, whatever the environment says" "$DIR/err" 'gave up after 200 ms'
let_go "$HOLDER"

what "names"
for name in 'with blank' "quote\"and'apostrophe" 'ümläut' '-dash' '*' '../../etc' $'tab\there'; do
    same "$name" "$N$name" "$("$BIN" run "$N$name" -- printenv MORTISE_NAME)"
done
"$BIN" run -- "-n" printf 5 >"$DIR/out"
same "a name that begins with a dash, behind --" 5 "$(cat "$DIR/out")"
long=$(printf '%0512d' 0)
"$BIN" run "${long:0:500}" -- true
same "500 bytes" 0 $?

what "passwords"
url="sqlite:$DIR/locks.db?ttl=20s"
"$BIN" -C "$url" run "${N}p" -- sh -c 'tr "\\0" " " <"/proc/$(ps -o ppid= $PPID | tr -d " ")/cmdline"' >"$DIR/words" 2>&1
no "the URL of -C does not stay in the wrapper's words" grep -q ttl=20s "$DIR/words"
has_line "the rest does" "$DIR/words" "-C sqlite:[*]+ run ${N}p -- sh"
wrong="host=db password=SECRET" # a file of that name, so that it goes on
printf '[mortise]\ndriver = sqlite\n[sqlite]\npath = %s\n' "$DIR/locks.db" >"$DIR/$wrong"
(cd "$DIR" && "$BIN" -C "$wrong" run "${N}p" -- \
    sh -c 'tr "\\0" " " <"/proc/$(ps -o ppid= $PPID | tr -d " ")/cmdline"' >words 2>&1)
has_line "nor does the rest of a connection string that was given by mistake" "$DIR/words" '-C host=[*]+ run'
same "the command finds MORTISE_CONFIG" "$MORTISE_CONFIG" "$("$BIN" run "${N}p" -- sh -c 'echo "$MORTISE_CONFIG"')"
same "not with --hide-config" none "$("$BIN" run --hide-config "${N}p" -- sh -c 'echo "${MORTISE_CONFIG-none}"')"

what "who holds it: the command's name"
same "its last part" sh "$("$BIN" run "${N}p" -- /bin/sh -c "'$BIN' status --json '${N}p' | sed 's/.*\"program\":\"\([^\"]*\).*/\1/'")"

end
