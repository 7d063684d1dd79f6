# searched.sh, read by run.sh and migrate.sh: what was searched before and found right is left out, by the record in the file
# "searched". Nothing of the build is in a model, so the same text has the same outcome. MORTISE_MODEL_ALL=1: nothing is left out;
# use it after an edit of run.sh, which is not in the sums.
# shellcheck shell=sh disable=SC2154 # `here` is the caller's

# searched_sum TIER FILE…: the version of spin is in it.
searched_sum() {
    searched_tier=$1
    shift
    { echo "$searched_tier" && cat -- "$@" && spin -V; } | sha256sum | cut -d ' ' -f 1
}

# was_searched WHAT SUM
was_searched() {
    [ "${MORTISE_MODEL_ALL:-0}" != 1 ] && grep -qx "$1 $2" "$here/searched" 2>/dev/null || return 1
    echo "$1: nothing has changed since all of it was searched and found right (tests/model/searched)"
}

# now_searched WHAT SUM: it is right.
now_searched() {
    grep -qx "$1 $2" "$here/searched" 2>/dev/null ||
        echo "To leave it out until it is edited, put this line in the place of its old one in tests/model/searched: $1 $2"
}
