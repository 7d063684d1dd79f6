-- Releases one grant. If it was the last one, the lock is free, and waiters are notified. Otherwise the
-- lock expires with the last of the others.
-- KEYS: lock. ARGV: grant, channel; the command to publish, if not PUBLISH. Returns 2 done, 1 another's, 0 not there.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields, mine, last = redis.call('hgetall', KEYS[1]), nil, 0
for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'g:' .. ARGV[1] then
        mine = tonumber(value) or 0
    elseif #field == 34 and string.sub(field, 1, 2) == 'g:' then
        last = math.max(last, tonumber(value) or 0)
    end
end
if not mine then
    return #fields > 0 and (last > now or last == 0) and 1 or 0
end
if last > now then
    redis.call('hdel', KEYS[1], 'g:' .. ARGV[1], 'n:' .. ARGV[1])
    redis.call('pexpireat', KEYS[1], string.format('%.0f', last))
else
    redis.call('del', KEYS[1])
    if not ARGV[3] or redis.pcall('pubsub', 'shardnumsub', ARGV[2])[2] ~= 0 then
        redis.pcall(ARGV[3] or 'publish', ARGV[2], '')
    end
end
return mine > now and 2 or 0
