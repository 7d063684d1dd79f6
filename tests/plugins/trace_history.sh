#!/bin/sh
# trace_history.sh - processes that contend for a lock leave traces that pass the check; and the check notices histories
# that are wrong in one way each.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
folder=$(mktemp -d "${TMPDIR:-/tmp}/mortise-trace.XXXXXX")
trap 'rm -rf -- "$folder"' EXIT
command -v python3 >/dev/null || {
    echo 'skipped: python3 is needed' >&2
    [ "${MORTISE_REQUIRE_ALL:-}" = 1 ] && exit 1
    exit 77
}

cat >"$folder/mortise.conf" <<END
[mortise]
driver = sqlite
observe = trace
[sqlite]
path = $folder/locks.db
[trace]
path = $folder/trace.json
flush = 10ms
END
chmod 600 "$folder/mortise.conf"
echo 0 >"$folder/counter"
pids=
for what in 'spin 100' 'spin 100' 'spin 100' 'spin 100' 'peek 50' 'peek 50'; do # two read under shared leases
    printf '%s nightly %s %s\nquit\n' "${what% *}" "$folder/counter" "${what#* }" |
        "$MORTISE_TAKER" "$folder/mortise.conf" >>"$folder/said" &
    pids="$pids $!"
done
for pid in $pids; do
    code=0
    wait "$pid" || code=$?
    [ "$code" -lt 128 ] || echo "a taker died by SIG$(kill -l "$code")" >&2
    [ "$code" -eq 0 ]
done
if grep -v '^OK$\|^ready$' "$folder/said" >&2; then
    # Somebody wrote while another one read, and nobody had stood still until his lease was lost.
    grep -q '^LOST' "$folder/said" || sed -n 's/^INVALID/FINDING: &/p' "$folder/said" >&2
    exit 1
fi
[ "$(cat "$folder/counter")" = 400 ] || { # all releases succeeded, so nobody had lost a lease
    echo "FINDING: the counter is $(cat "$folder/counter"), not 400" >&2
    exit 1
}
python3 "$here/check_trace.py" "$folder/trace.json" | tee "$folder/found"
grep -q '"mode":"shared"' "$folder/trace.json"
grep -q '^6 clients, .* 500 holds of 1 names: 0 faults$' "$folder/found"

# wrong WHAT SCRIPT: the trace of one client, changed by sed, must be refused with WHAT.
client=$(sed -n '1s/.*"client":"\([0-9a-f]*\)".*/\1/p' "$folder/trace.json")
wrong() {
    sed "$2" "$folder/trace.json" >"$folder/wrong.json"
    cmp -s "$folder/trace.json" "$folder/wrong.json" && {
        echo "\"$2\" changes nothing" >&2
        exit 1
    }
    if python3 "$here/check_trace.py" "$folder/wrong.json" >/dev/null 2>"$folder/found"; then
        echo "not found out: $1" >&2
        exit 1
    fi
    grep -q "$1" "$folder/found" || {
        echo "found for another reason: $1" >&2
        cat "$folder/found" >&2
        exit 1
    }
}
# Of the leases that were granted: the line of the last one, the instant of the first (clients write in turns).
granted=$(sed -n '/"event":"granted"/{=;s/.*"at_ns":\([0-9]*\).*/\1/p}' "$folder/trace.json" | paste - - |
    sort -n -k 2 >"$folder/granted" && sed -n '$s/[^0-9].*//p' "$folder/granted")
first=$(sed -n '1s/.*[^0-9]//p' "$folder/granted")
wrong 'events were written' "${granted}d"
wrong 'did not close' "/\"closed\".*$client\|$client.*\"closed\"/d"
wrong 'came to no end' '/"released"/d'
wrong 'token 1 after' "${granted}s/\"token\":[0-9]*/\"token\":1/"
wrong 'and by another from' "${granted}s/\"at_ns\":[0-9]*/\"at_ns\":$first/"
wrong 'not JSON' "${granted}s/}\$//"
