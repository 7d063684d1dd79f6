-- Releases one hold, and the owner's grants that have ended. As with Redisson's unlock, the hash is deleted
-- with the last hold, and "0" is published to its channel. If all remaining holds are ours, the hash expires
-- with the last of them.
-- KEYS: lock. ARGV: grant, channel, owner's field, 1 if shared. Returns 2 done, 1 another's, 0 not there.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields, hold, gone, left, last = redis.call('hgetall', KEYS[1]), {}, {}, 0, 0
local grant, shared = 'mortise:' .. ARGV[1], ARGV[4] == '1'
for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    hold[field] = value
    if #field == 40 and string.sub(field, 1, 8) == 'mortise:' then
        if field == grant or (tonumber(value) or 0) <= now then
            gone[#gone + 1] = field
        else
            left, last = left + 1, math.max(last, tonumber(value))
        end
    end
end
if not hold[ARGV[3]] then
    return #fields > 0 and 1 or 0
end
if shared and not hold[grant] then
    return 0
end
local count = (tonumber(hold[ARGV[3]]) or 0) - (shared and #gone or 1)
if count <= 0 then
    redis.call('del', KEYS[1])
    redis.pcall('publish', ARGV[2], '0')
else
    if shared then -- first what a full memory does not refuse: the script may write then
        for i = 1, #gone, 1000 do -- as many as the stack of Lua has room for
            redis.call('hdel', KEYS[1], unpack(gone, i, math.min(i + 999, #gone)))
        end
    end
    redis.call('hincrby', KEYS[1], ARGV[3], shared and -#gone or -1)
    if shared and count == left then
        redis.call('pexpireat', KEYS[1], string.format('%.0f', last))
    end
end
return (not shared or (tonumber(hold[grant]) or 0) > now) and 2 or 0
