-- Acquires a free lock that nobody waits for; otherwise hands it to the waiters, or waits for it. The lock is a
-- string as in string_acquire.
-- KEYS: lock, token, queue. ARGV: grant, ttl (ms), floor of the token, note; wish (include/queue): without one, it
-- only tries. Returns the new token; or {remaining ms, token} of this very grant, if it holds already; or, if it has
-- a place, minus the ms after which it must ask again; or {remaining ms, value, now µs}.
local call, wish, held, free = redis.call, ARGV[5], nil, nil
if not wish then
    free = call('exists', KEYS[1], KEYS[3]) == 0
else
    held = call('get', KEYS[1])
    free = not held and call('exists', KEYS[3]) == 0
end
if free then
    local time, last = call('time'), call('get', KEYS[2])
    local now_text = time[1] .. string.sub('00000' .. time[2], -6)
    -- the hybrid clock: it still grows if the data or the clock is lost, but not if both are lost
    -- at once
    local now, token = tonumber(now_text), math.max((tonumber(last) or 0) + 1, tonumber(ARGV[3]))
    local token_text, life = now_text, '86400000'
    if token > 9007199254740991 then
        return redis.error_reply('ERR the token has come to its end, 2^53')
    elseif token > now then
        token_text = string.format('%.0f', token)
        life = string.format('%.0f', (token - now) / 1000 + 86400000)
    else
        token = now
    end
    call('set', KEYS[2], token_text, 'px', life)
    call('set', KEYS[1], ARGV[1] .. ' ' .. token_text .. ' ' .. now_text .. '\n' .. ARGV[4], 'px', ARGV[2])
    return token
end
-- a short way for the most common case in a crowd: the lock is held, others wait, and the place
-- goes behind the last of them
local sub, before = string.sub, nil
if held and sub(wish, 1, 1) == 'n' and sub(held, 1, 32) ~= ARGV[1] then
    before = call('lindex', KEYS[3], '-1')
end
if before then
    local time, till, least = call('time'), sub(before, 62, 77), sub(before, 51, 60)
    local now, ttl = time[1] .. (#time[2] == 6 and time[2] or sub('00000' .. time[2], -6)), sub(wish, 2, 11)
    if till - now > 1000 * ttl then
        least = least < ttl and least or ttl
        local left = call('pttl', KEYS[1])
        call('rpush', KEYS[3],
            ARGV[1] .. ' ' .. now .. ' ' .. least .. ' ' .. till .. ' ' .. sub(wish, 2) .. '\n' .. ARGV[4])
        least = tonumber(least)
        return -(left >= 0 and left < least and left + 1 or least)
    end
end
-- include queue
-- include shared
-- include hand_on
-- include queue_string
held = held or call('get', KEYS[1])
local time = call('time')
local now = time[1] .. sub('00000' .. time[2], -6)
if held and grant_of(held) == ARGV[1] then
    local token, rest = string.match(held, '^%x+ (%d+)(.*)$')
    local remaining = call('pttl', KEYS[1])
    -- It was given here before its floor was known here. Nobody knows this token yet.
    if tonumber(token) < tonumber(ARGV[3]) and remaining > 0 then
        token = next_token(KEYS[2], now, ARGV[3])
        if not token then
            return redis.error_reply('ERR the token has come to its end, 2^53')
        end
        call('set', KEYS[1], ARGV[1] .. ' ' .. token .. rest, 'px', remaining)
    end
    return {remaining, tonumber(token)}
end
-- the lock is free although somebody waits: its holder has died
if not held and hand_on(KEYS[1], KEYS[2], KEYS[3], call('lpop', KEYS[3]), now, ARGV[1], taker(KEYS[1], now)) then
    held = call('get', KEYS[1])
end
if held and wish then
    return sit(KEYS[3], now, ARGV[1], wish, ARGV[4], call('pttl', KEYS[1]))
elseif held then
    return {call('pttl', KEYS[1]), sub(held, 1, 4096), now} -- it may be anybody's, and large
end
local token = next_token(KEYS[2], now, ARGV[3])
if not token then
    return redis.error_reply('ERR the token has come to its end, 2^53')
end
call('set', KEYS[1], ARGV[1] .. ' ' .. token .. ' ' .. now .. '\n' .. ARGV[4], 'px', ARGV[2])
return tonumber(token)
