# redis_left.sh - left_on_server prints what clients have left in a Redis server. Sourced by the hooks of the drivers that
# use Redis, which define `server`; $only (only=N) selects one of several.
# shellcheck shell=sh disable=SC2154 # only, server

only=''

ask_server() {
    server ask ${only:+"$only"} "$@"
}

# Keys; one that keeps a name's last token may stay if it goes by itself; records are there to stay.
left_keys() {
    ask_server --no-raw eval "
        local left = {}
        for _, key in ipairs(redis.call('keys', '*')) do
            if key:find(':mortise:token\$') then
                if redis.call('pttl', key) < 0 then
                    left[#left + 1] = 'key without a ttl ' .. key
                end
            elseif not key:find(':mortise:record\$') then
                left[#left + 1] = 'key ' .. key
            end
        end
        return left" 0 | grep -v '^(empty' || true
}

# Connections other than this one and the replicas'.
left_clients() {
    printf 'client id\nclient list\n' | ask_server | awk '
        NR == 1 { own = "id=" $1; next }
        /^id=/ && $1 != own && !/ flags=[SM]/ { print "client " $0 }'
}

# What a user with few rights was refused: it has too few, or too much was asked.
left_denials() {
    ask_server --no-raw acl log 2>/dev/null | grep -A1 -E '"(object|username)"$' | grep -vE '"(object|username)"$|^--$' |
        sed 's/^/denied: /' || true
}

left_on_server() {
    ask_server ping >/dev/null 2>&1 || {
        echo 'the server does not answer'
        return
    }
    left_keys
    ask_server pubsub channels | sed '/^$/d; s/^/subscribed channel /'
    ask_server pubsub numpat | sed '/^0$/d; s/^/subscribed patterns: /'
    left_clients
    left_denials
}
