-- Renews each lock of a list, in Redisson's layout, if its hold is still there; never shortens one.
-- KEYS: locks. ARGV: for each grant, ttl (ms), owner's field, 1 if shared. Returns a digit for
-- each: 2 renewed, 1 another's, 0 gone, 3 unknown.
-- include any_slot
local time, out = redis.call('time'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #KEYS do
    local lock, grant, ttl = KEYS[i], 'mortise:' .. ARGV[4 * i - 3], tonumber(ARGV[4 * i - 2])
    local shared = ARGV[4 * i] == '1'
    local ends = shared and redis.pcall('hget', lock, grant) or nil
    local mine = redis.pcall('hexists', lock, ARGV[4 * i - 1])
    local refused = type(mine) == 'table' and mine or mine == 1 and type(ends) == 'table' and ends
    ends = type(ends) == 'string' and tonumber(ends) or 0
    if refused then
        out[i] = string.find(refused.err, 'WRONGTYPE') and '1' or '3'
    elseif mine ~= 1 then
        out[i] = redis.call('exists', lock) == 1 and '1' or '0'
    elseif shared and ends <= now then
        out[i] = '0'
    else
        -- first a write that a full memory does not refuse: after it, the script may write
        redis.call('pexpire', lock, math.max(redis.call('pttl', lock), ttl))
        if shared then
            redis.call('hset', lock, grant, string.format('%.0f', math.max(now + ttl, ends)))
        end
        out[i] = '2'
    end
end
return table.concat(out)
