#!/bin/sh
# The recipes of docs/recipes.md, as printed there: the crontab line runs as cron runs it, systemd verifies the units and
# their commands run, and the rest is at least well-formed.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
. "$(dirname "$0")/common"

page=$(dirname "$0")/../../docs/recipes.md
[ -r "$page" ] || skip "no docs/recipes.md"

# block WORDS: the text of the fenced block whose first line is ```WORDS
block() {
    awk -v fence="\`\`\`$1" '$0 == "```" { inside = 0 } inside; $0 == fence { inside = 1 }' "$page"
}

what "the crontab"
block crontab >"$DIR/crontab"
line=$(grep -E '^[0-9*]' "$DIR/crontab")
path=$(sed -n 's/^PATH=//p' "$DIR/crontab")
minute_to_weekday='^([^ ]+ ){5}'
yes "five fields and a command" grep -Eq "$minute_to_weekday" <<<"$line"
no "no % that cron would take for a line's end" grep -q '%' <<<"$line"
mkdir -p "$DIR/home" "$DIR/bin"
ln -sf "$BIN" "$DIR/bin/mortise"
as_cron() { # [CONFIG [FILTER]]: the configuration that stands for the file which the crontab names; what is appended to the line
    local config=()
    grep -qx 'MORTISE_CONFIG=/etc/mortise/mortise.conf' "$DIR/crontab" && config=("MORTISE_CONFIG=${1:-$MORTISE_CONFIG}")
    (cd "$DIR/home" && env -i SHELL=/bin/sh HOME="$DIR/home" LOGNAME=somebody "${config[@]}" \
        MORTISE_MODULE_PATH="${MORTISE_MODULE_PATH:-}" PATH="$DIR/bin:$path" \
        /bin/sh -c "$(sed -E "s/$minute_to_weekday//" <<<"$line") ${2:-}" </dev/null)
}
what "the crontab line on a host without the config file"
as_cron "$DIR/none/mortise.conf" >"$DIR/out" 2>&1
same "the code" 78 $?
has_line "said" "$DIR/out" "$DIR/none/mortise.conf"
no "the job did not run" [ -e "$DIR/home/nightly.log" ]

what "the crontab line, as cron runs it"
# the job ends when it is told to, not after some seconds: the second host may be later than that here
mkfifo "$DIR/go"
exec {GO}<>"$DIR/go"
has_line "the job takes a while" "$DIR/crontab" "; sleep 15'$"
line=${line/sleep 15/read -r _ <$DIR/go}
line=${line/-w 5s/-w 1s}
as_cron >"$DIR/one" 2>&1 &
one=$!
until_true is_held nightly
begin=$(ms)
as_cron >"$DIR/two" 2>&1
same "a second host: a success" 0 $?
yes "within moments" [ $(($(ms) - begin)) -lt 20000 ]
has_line "that says who has it" "$DIR/two" '^mortise: "nightly" is held by .*; gave up after 1 s'
filter=$(sed -nE 's/.*append `(2>&1 \| grep -v [^`]*)`.*/\1/p' "$page")
yes "the page has a filter" [ -n "$filter" ]
same "which leaves nothing for cron to mail" "" "$(as_cron "" "$filter")"
echo >&"$GO"
same_code "the first one ends with 0" 0 $one
same "silently" "" "$(cat "$DIR/one")"
same "the job was done once" 1 "$(wc -l <"$DIR/home/nightly.log")"
same "a last try that met a holder: nothing to mail either" "" \
    "$(sh -c "echo 'mortise: \"nightly\" was held by another; gave up after 5 s' $filter")"
same "the filter keeps the line of a job that locks the same name" 1 "$(
    line="${line%% -- *} -- mortise run -E 0 nightly -- true"
    as_cron "" "$filter" | grep -c 'would wait for itself')"

what "the crontab line while the server does not answer"
servers() {
    sh "$(dirname "$0")/../servers.sh" "$@"
}
if command -v redis-server >/dev/null && command -v redis-cli >/dev/null && "$BIN" drivers redis >/dev/null 2>&1; then
    mkdir "$DIR/server"
    port=$(servers start redis "$DIR/server" "guard=$$" | sed -n 's/^PORT=//p')
    silent="redis://127.0.0.1:$port?unreachable_timeout=500ms"
    servers freeze redis "$DIR/server"
    as_cron "$silent" >"$DIR/out" 2>&1
    same "no success" 69 $?
    same "the filter keeps the line" 1 "$(as_cron "$silent" "$filter" | grep -c 'was not acquired')"
    same "the job did not run once more" 1 "$(wc -l <"$DIR/home/nightly.log")"
    servers end redis "$DIR/server"
else
    printf 'not checked here: a server that does not answer (no redis-server)\n'
fi

what "the units"
mkdir "$DIR/units"
for unit in nightly.service nightly.timer worker.service mortise-witness@.service; do
    block "systemd $unit" >"$DIR/printed"
    yes "$unit is printed" [ -s "$DIR/printed" ]
    # the program stands where this one is
    sed "s|/usr/bin/mortise|$BIN|" "$DIR/printed" >"$DIR/units/$unit"
done
if command -v systemd-analyze >/dev/null; then
    complaints() { # FOLDER UNIT: those about this one; of a template they name the file, or an instance
        systemd-analyze verify --man=no "$DIR/$1/$2" >"$DIR/out" 2>&1
        CODE=$?
        grep -F "${2/%@.service/@}" "$DIR/out"
    }
    for unit in nightly.service nightly.timer worker.service mortise-witness@.service; do
        complaints units "$unit" >"$DIR/complaints"
        same "systemd-analyze verify $unit" 0 $CODE
        same "nothing to complain about" "" "$(cat "$DIR/complaints")"
    done
    mkdir "$DIR/planted"
    sed 's|^ExecStart=.*|&\nExecStartPre=/no/such/program|' "$DIR/units/$unit" >"$DIR/planted/$unit"
    yes "a complaint about an instance of the template is seen" [ -n "$(complaints planted "$unit")" ]
else
    printf 'not checked here: systemd-analyze verify (no systemd)\n'
fi
for unit in nightly.service worker.service; do
    has_line "$unit names the config file" "$DIR/units/$unit" '^Environment=MORTISE_CONFIG=/etc/mortise/mortise\.conf$'
done
exec_start() {
    sed -n "s|^ExecStart=||p" "$DIR/units/$1"
}
# without the pause, in which the hosts that start later find the lock held
has_line "the job takes a while" "$DIR/units/nightly.service" "; sleep 60'$"
sh -c "$(exec_start nightly.service | sed "s|/var/tmp/|$DIR/|; s|; sleep 60||")"
same "the job's command" 0 $?
yes "did its work" [ -s "$DIR/nightly.log" ]
sh -c "exec $(exec_start worker.service)" >"$DIR/active" &
worker=$!
yes "the worker becomes active" until_true holds "$DIR/active" '^active'
sh -c "exec $(exec_start worker.service)" >"$DIR/standby" &
standby=$!
until_true someone_waits worker
no "another one stands by" [ -s "$DIR/standby" ]
kill -TERM $worker
yes "and takes over when the first is stopped" until_true holds "$DIR/standby" '^active'
same_code "the active one's code when it is stopped" 143 $worker
kill -TERM $standby
same_code "stopped as well" 143 $standby
has_line "which is a success for the unit" "$DIR/units/worker.service" '^SuccessExitStatus=143$'
sh -c "MORTISE_CONFIG=$DIR/none/mortise.conf exec $(exec_start worker.service)" >/dev/null 2>&1
same "a worker without its config file" 78 $?
sh -c "exec $(exec_start worker.service | sed 's|-- .*|-- mortise-no-such-program|')" >/dev/null 2>&1
same "a worker that is not there" 127 $?
has_line "neither is started again" "$DIR/units/worker.service" '^RestartPreventExitStatus=64 78 126 127$'

what "the manifest"
if command -v python3 >/dev/null && python3 -c 'import yaml' 2>/dev/null; then
    block yaml | python3 -c 'import sys, yaml
job = yaml.safe_load(sys.stdin)
command = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"]
sys.exit(command[:2] != ["mortise", "run"])'
    same "is YAML, and its command a run" 0 $?
    block "yaml deployment" | python3 -c 'import sys, yaml
pod = yaml.safe_load(sys.stdin)["spec"]["template"]["spec"]
worker = pod["containers"][0]
sys.exit(worker["command"][:2] != ["mortise", "run"] or "livenessProbe" in worker)'
    same "so is that of the deployment" 0 $?
else
    printf 'not checked here: the manifest (no YAML reader)\n'
fi

what "the script"
block sh >"$DIR/script"
printf '#!/bin/sh\n' >"$DIR/bin/prepare"
printf '#!/bin/sh\necho switched "$@"\n' >"$DIR/bin/switch_over"
chmod 755 "$DIR/bin/prepare" "$DIR/bin/switch_over"
PATH=$DIR/bin:$PATH sh "$DIR/script" >"$DIR/out"
same "runs" 0 $?
has_line "and hands the token on" "$DIR/out" '^switched --token [0-9]+$'
"$BIN" run --on-loss warn --ttl 6s "${N}fd" -- bash -c '
    if read -r -t 0 -u "$MORTISE_LEASE_FD"; then echo too early; fi
    '"$BIN"' break "$MORTISE_NAME" --token "$MORTISE_TOKEN"
    for i in $(seq 6000); do
        if read -r -t 0 -u "$MORTISE_LEASE_FD"; then echo lost; exit; fi
        sleep 0.01
    done' >"$DIR/out" 2>/dev/null
same "its question to the descriptor has the right answers" lost "$(cat "$DIR/out")"

what "jobs that share a lock"
if ! "$BIN" check | grep -q '^locks .* shared, permits'; then
    printf 'not checked here: the driver has no shared locks\n'
    end
fi
for program in convert-video report reindex; do # each ends when it is told to
    printf '#!/bin/sh\necho %s$1 >>%s/started\nuntil [ -e %s/end.%s$1 ]; do sleep 0.02; done\n' \
        $program "$DIR" "$DIR" $program >"$DIR/bin/$program"
done
chmod 755 "$DIR"/bin/*
for recipe in slots reader maintenance; do
    block "sh $recipe" >"$DIR/$recipe"
done
recipe() { # BLOCK [WORD]: in the background; JOB is its pid
    PATH=$DIR/bin:$PATH bash "$DIR/$1" "${2:-}" >>"$DIR/recipe.out" 2>&1 &
    JOB=$!
}
for i in 1 2 3 4 5; do
    recipe slots "$i"
done
yes "four conversions run" until_true lines_in "$DIR/started" 4
until_true someone_waits convert || wrong "the fifth does not wait"
same "and no fifth" 4 "$(wc -l <"$DIR/started")"
: >"$DIR/end.$(head -n 1 "$DIR/started")"
yes "it runs once one has ended" until_true lines_in "$DIR/started" 5
for i in 1 2 3 4 5; do : >"$DIR/end.convert-video$i"; done
yes "all have ended" until_true is_free convert
: >"$DIR/started"
recipe reader
recipe reader
yes "two reports run" until_true lines_in "$DIR/started" 2
recipe maintenance
until_true someone_waits warehouse || wrong "the maintenance does not wait"
no "the maintenance waits for them" grep -q reindex "$DIR/started"
recipe reader
: >"$DIR/end.report"
yes "and runs then" until_true grep -q reindex "$DIR/started"
same "before the third report" 2 "$(grep -c report "$DIR/started")"
: >"$DIR/end.reindex"
yes "which runs afterwards" until_true lines_in "$DIR/started" 4
same_code "all is well" 0 $JOB

end
