-- Gives a lock back where it is under this grant, and hands it on; a grant that only waits leaves the queue.
-- KEYS: lock, token, queue. ARGV: grant, channel. 2 done, 1 another's, 0 not there.
local call = redis.call
local held = call('getrange', KEYS[1], '0', '31')
local place, now
if held == ARGV[1] then
    place = call('lpop', KEYS[3])
    if not place then
        call('del', KEYS[1])
        redis.pcall('publish', ARGV[2], '')
        return 2
    end
    -- what happens most where many wait, in few words: the first of them is there, and the tokens go by the clock
    local sub, time, last = string.sub, call('time'), call('get', KEYS[2])
    now = time[1] .. sub('00000' .. time[2], -6)
    local ttl = tonumber(sub(place, 79, 88))
    if #place > 172 and 3 * (now - sub(place, 34, 49)) < 2000 * ttl and last and #last == 16 and last < now and
        sub(place, 110, 125) <= now then
        local grant = sub(place, 1, 33)
        call('set', KEYS[2], now, 'px', '86400000')
        call('set', KEYS[1], grant .. now .. ' ' .. now .. '\n' .. sub(place, 174), 'px', ttl)
        local told = redis.pcall('publish', sub(place, 127, 172), grant .. now .. ' ' .. sub(place, 90, 108))
        if type(told) == 'number' and told > 0 then
            return 2
        end
        place = call('lpop', KEYS[3])
    end
elseif call('exists', KEYS[3]) == 0 then
    return held == '' and 0 or 1
end
-- include queue
-- include queue_string
if held ~= ARGV[1] then
    leave(KEYS[3], ARGV[1])
    return held == '' and 0 or 1
end
if not hand_on(KEYS[1], KEYS[2], KEYS[3], place, now, nil, taker(KEYS[1], now)) then
    redis.pcall('publish', ARGV[2], '')
end
return 2
