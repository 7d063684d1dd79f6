-- Releases a lock that is held under this grant, and hands it on. A grant that only waits leaves the queue. KEYS:
-- lock, token, queue. ARGV: grant, channel; the command to publish, if not PUBLISH. Returns 2 done, 1 another's,
-- 0 not there.
local call, sub = redis.call, string.sub
local held, refused = redis.pcall('get', KEYS[1]), nil
if type(held) == 'table' then
    held, refused = false, held
    if not string.find(refused.err, 'WRONGTYPE', 1, true) then
        return refused
    end -- else it is another program's key; but who waited for the lock has a place to leave
end
local mine = held and sub(held, 1, 32) == ARGV[1]
local place, now
if mine then
    place = call('lpop', KEYS[3])
    if not place then
        call('del', KEYS[1])
        if not ARGV[3] or redis.pcall('pubsub', 'shardnumsub', ARGV[2])[2] ~= 0 then
            redis.pcall(ARGV[3] or 'publish', ARGV[2], '')
        end
        return 2
    end
    -- a short way for the most common case in a crowd: the client of the first place is there, and tokens go by
    -- the clock. The last token is the lock's own
    local time, last, ttl = call('time'), sub(held, 34, 49), string.match(place, '[1-9]%d*', 79)
    now = time[1] .. (#time[2] == 6 and time[2] or sub('00000' .. time[2], -6))
    if #place > 172 and 3 * (now - sub(place, 34, 49)) < 2000 * ttl and sub(held, 50, 50) == ' ' and last < now and
        sub(place, 110, 125) <= now then
        local grant = sub(place, 1, 33)
        call('set', KEYS[2], now, 'px', '86400000')
        call('set', KEYS[1], grant .. now .. ' ' .. now .. '\n' .. sub(place, 174), 'px', ttl)
        -- the inbox of a cluster: see tell() in include/queue
        local inbox, told = sub(place, 127, 172), nil
        if sub(inbox, 15, 15) ~= 'n' or (redis.pcall('pubsub', 'numsub', inbox)[2] or 0) > 0 then
            told = redis.pcall('publish', inbox, grant .. now .. sub(place, 89, 108))
        end
        if type(told) == 'number' and told > 0 then
            return 2
        end
        place = redis.pcall('lpop', KEYS[3]) -- see next_place() in include/queue
        place = type(place) == 'string' and place or nil
    end
elseif call('exists', KEYS[3]) == 0 then
    return refused or (held and 1 or 0)
end
-- include queue
-- include shared
-- include hand_on
-- include queue_string
if not mine then
    local left = leave(KEYS[3], ARGV[1])
    if refused then
        return left and 1 or refused
    elseif held and is_phase(held) then
        local time = call('time')
        shared(KEYS[1], KEYS[3], false, time[1] .. sub('00000' .. time[2], -6)).let_in(KEYS[2])
    end
    return held and 1 or 0
end
if not hand_on(KEYS[1], KEYS[2], KEYS[3], place, now, nil, taker(KEYS[1], now)) then
    if not ARGV[3] or redis.pcall('pubsub', 'shardnumsub', ARGV[2])[2] ~= 0 then
        redis.pcall(ARGV[3] or 'publish', ARGV[2], '')
    end
end
return 2
