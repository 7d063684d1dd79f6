-- Releases one grant; if it was the last one, hands the lock on. A grant that only waits leaves the queue.
-- KEYS: lock, token, queue. ARGV: grant, channel; the command to publish, if not PUBLISH. Returns 2 done, 1
-- another's, 0 not there.
local time = redis.call('time')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local now_ms = math.floor(now / 1000)
local fields, mine, last = redis.pcall('hgetall', KEYS[1]), nil, 0
if fields.err and not string.find(fields.err, 'WRONGTYPE', 1, true) then
    return fields
end -- else it is another program's key; but who waited for the lock has a place to leave
for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'g:' .. ARGV[1] then
        mine = tonumber(value) or 0
    elseif #field == 34 and string.sub(field, 1, 2) == 'g:' then
        last = math.max(last, tonumber(value) or 0)
    end
end
local waiting = redis.call('exists', KEYS[3]) == 1
-- include queue
-- include shared
-- include hand_on
-- include queue_hash
if not mine then
    local left = waiting and leave(KEYS[3], ARGV[1])
    if fields.err then
        return left and 1 or fields
    elseif waiting then
        shared(KEYS[1], KEYS[3], true, now).let_in(KEYS[2])
    end
    return #fields > 0 and (last > now_ms or last == 0) and 1 or 0
end
if last > now_ms then
    redis.call('hdel', KEYS[1], 'g:' .. ARGV[1], 'n:' .. ARGV[1])
    redis.call('pexpireat', KEYS[1], text(last))
else
    if not hand_on_hash(KEYS[1], KEYS[2], KEYS[3], now, nil) then
        if not ARGV[3] or redis.pcall('pubsub', 'shardnumsub', ARGV[2])[2] ~= 0 then
            redis.pcall(ARGV[3] or 'publish', ARGV[2], '')
        end
    end
end
return mine > now_ms and 2 or 0
