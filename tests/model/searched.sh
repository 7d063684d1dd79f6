# searched.sh, read by run.sh and migrate.sh: by day a model is left out if this very text of it, of its script and of this file
# was searched before with this version of spin (a line of the file "searched"). Nothing of the build is in a model, so the
# outcome would be the same. At night all are searched.
# shellcheck shell=sh

# searched_sum FILE…
searched_sum() {
    { cat -- "$@" "$here/searched.sh" && spin -V; } | sha256sum | cut -d ' ' -f 1
}

# was_searched MODEL SUM
was_searched() {
    [ "${MORTISE_NIGHTLY:-0}" != 1 ] && grep -qx "$1 $2" "$here/searched" 2>/dev/null || return 1
    echo "$1 and its script are as they were when all of this was searched and found right (tests/model/searched)"
}

# now_searched MODEL SUM: it is right.
now_searched() {
    grep -qx "$1 $2" "$here/searched" 2>/dev/null ||
        echo "To leave it out by day until it is edited, put this line in the place of its old one in tests/model/searched: $1 $2"
}
