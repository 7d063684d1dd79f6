# redis_left.sh - left_on_server prints what clients have left in a Redis server, left_on_all in each of a group. Sourced by the hooks
# of the drivers that use Redis, which define `server` and FOLDER; $only (only=N) selects one of several.
# shellcheck shell=sh disable=SC2154 # only, server

only=''

# Keys; one that keeps a name's last token may stay if it goes by itself; records are there to stay. A key may have lines.
left_keys="local left, newline = {}, string.char(10)
for _, key in ipairs(redis.call('keys', '*')) do
    local name = key:gsub(newline, string.char(92) .. 'n')
    if key:find(':mortise:token\$') or key:find('^{[^}]*}:mortise:token:') then
        if redis.call('pttl', key) < 0 then
            left[#left + 1] = 'key without a ttl ' .. name
        end
    elseif not key:find(':mortise:record\$') then
        left[#left + 1] = 'key ' .. name
    end
end
return left"

# All that is asked in one connection; a line "--- WHAT" stands before each answer.
left_questions() {
    printf '%s\n' 'readonly' 'echo "--- keys"' # of a cluster's replica, too; elsewhere an error
    printf 'eval "%s" 0\n' "$(printf %s "$left_keys" | tr '\n' ' ')"
    printf '%s\n' 'echo "--- channels"' 'pubsub channels' \
        'echo "--- shards"' 'pubsub shardchannels' 'echo "--- patterns"' 'pubsub numpat' 'echo "--- own"' 'client id' \
        'echo "--- clients"' 'client list' 'echo "--- denials"' 'acl log' 'echo "--- end"'
}

# Of clients, those other than this one and the replicas'. Of denials, what a user with few rights was refused: it has too
# few, or too much was asked.
left_answers() {
    awk '
        /^--- / { part = $2; next }
        $0 == "" { next }
        part == "keys" { print }
        part == "channels" { print "subscribed channel " $0 }
        part == "shards" && !/^ERR/ { print "subscribed channel " $0 } # Redis 7
        part == "patterns" && $0 != "0" { print "subscribed patterns: " $0 }
        part == "own" { own = "id=" $1 }
        part == "clients" && /^id=/ && $1 != own && !/ flags=[SM]/ { print "client " $0 }
        part == "denials" && last ~ /^(object|username)$/ { print "denied: " $0 }
        { last = $0 }
        END { if (part != "end") print "the server does not answer" }'
}

left_on_server() {
    left_questions | server ask ${only:+"$only"} 2>/dev/null | left_answers
}

# On each server of a group.
left_on_all() {
    for node in $(sed -n 's/^PORT=.*/1/p;s/^PORT\([0-9][0-9]*\)=.*/\1/p' "$FOLDER/values"); do
        only=only=$node
        left_on_server | sed "s/^/node $node: /"
    done
}
