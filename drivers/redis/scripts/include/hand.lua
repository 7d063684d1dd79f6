-- Hands on a free lock of either layout. Needs queue_string and queue_hash.
local function hand(hash, now, self)
    if hash then
        return hand_on_hash(KEYS[1], KEYS[2], KEYS[3], now, self)
    end
    return hand_on(KEYS[1], KEYS[2], KEYS[3], call('lpop', KEYS[3]), now, self, taker(KEYS[1], now))
end
local function now_text()
    local time = call('time')
    return time[1] .. sub('00000' .. time[2], -6)
end
