-- Renews each grant of a list that still holds; never shortens one.
-- KEYS: locks. ARGV: for each grant, ttl (ms). Returns a digit for each: 2 renewed, 1 another's, 0 gone, 3 unknown.
-- include any_slot
local time, out = redis.call('time'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #KEYS do
    local field = 'g:' .. ARGV[2 * i - 1]
    local fields = redis.pcall('hgetall', KEYS[i])
    local mine, last = 0, 0
    for j = 1, #fields, 2 do
        if #fields[j] == 34 and string.sub(fields[j], 1, 2) == 'g:' then
            local ends = tonumber(fields[j + 1]) or 0
            last = math.max(last, ends)
            mine = fields[j] == field and ends or mine
        end
    end
    if mine > now then
        local ends = math.max(mine, now + ARGV[2 * i])
        -- first a write that a full memory does not refuse: after it, the script may write
        redis.call('pexpireat', KEYS[i], string.format('%.0f', math.max(ends, last)))
        out[i] = '0'
        if redis.call('exists', KEYS[i]) == 1 then -- or this script was stopped for longer than the ttl
            redis.call('hset', KEYS[i], field, string.format('%.0f', ends))
            out[i] = '2'
        end
    elseif fields.err then
        out[i] = string.find(fields.err, 'WRONGTYPE') and '1' or '3'
    else
        out[i] = last > now and '1' or '0'
    end
end
return table.concat(out)
