-- One turn: releases a lock that is held under this grant, hands it to the first waiter, and puts the next op of the same
-- client at the end of the queue. If nobody waits, that next op gets the lock. The effect is that of queue_string_release
-- and then queue_string_acquire, in one step.
-- KEYS: lock, token, queue. ARGV: grant; grant, note and wish (include/queue) of the next op; channel; the command to
-- publish, if not PUBLISH. Returns {2, token}, or {2, minus the ms after which the next op must ask again}; or nil:
-- this is not the common case, and nothing was done.
local call, sub, wish = redis.call, string.sub, ARGV[4]
local held = call('get', KEYS[1])
if not held or sub(held, 1, 32) ~= ARGV[1] or sub(held, 50, 50) ~= ' ' then
    return nil
end
local place, time, ttl = call('lindex', KEYS[3], '0'), call('time'), sub(wish, 2, 11)
local now = time[1] .. (#time[2] == 6 and time[2] or sub('00000' .. time[2], -6))
-- tokens go by the clock; the last one is the lock's own
if sub(held, 34, 49) >= now then
    return nil
end
local function news()
    if not ARGV[6] or redis.pcall('pubsub', 'shardnumsub', ARGV[5])[2] ~= 0 then
        redis.pcall(ARGV[6] or 'publish', ARGV[5], '')
    end
end
if not place then
    if sub(wish, 33, 48) > now then
        return nil
    end
    call('set', KEYS[2], now, 'px', '86400000')
    call('set', KEYS[1], ARGV[2] .. ' ' .. now .. ' ' .. now .. '\n' .. ARGV[3], 'px', tonumber(ttl))
    news()
    return {2, tonumber(now)}
end
-- the first waiter is there, and the queue lives long enough for another place
local before, its_ttl = call('lindex', KEYS[3], '-1'), string.match(place, '[1-9]%d*', 79)
if #place < 173 or #before < 173 or 3 * (now - sub(place, 34, 49)) >= 2000 * its_ttl or sub(place, 110, 125) > now or
    sub(before, 62, 77) - now <= 1000 * ttl then
    return nil
end
local least = sub(before, 51, 60)
least = least < ttl and least or ttl
call('rpush', KEYS[3], ARGV[2] .. ' ' .. now .. ' ' .. least .. ' ' .. sub(before, 62, 77) .. ' ' .. sub(wish, 2) .. '\n' ..
    ARGV[3])
call('lpop', KEYS[3])
local grant = sub(place, 1, 33)
call('set', KEYS[2], now, 'px', '86400000')
call('set', KEYS[1], grant .. now .. ' ' .. now .. '\n' .. sub(place, 174), 'px', its_ttl)
-- the inbox of a cluster: see tell() in include/queue
local inbox, told = sub(place, 127, 172), nil
if sub(inbox, 15, 15) ~= 'n' or (redis.pcall('pubsub', 'numsub', inbox)[2] or 0) > 0 then
    told = redis.pcall('publish', inbox, grant .. now .. sub(place, 89, 108))
end
if type(told) == 'number' and told > 0 then
    return {2, -tonumber(least)}
end
-- include queue
-- include shared
-- include hand_on
-- include queue_string
if hand_on(KEYS[1], KEYS[2], KEYS[3], call('lpop', KEYS[3]), now, nil, taker(KEYS[1], now)) then
    return {2, -tonumber(least)}
end
news()
return {2, -1}
