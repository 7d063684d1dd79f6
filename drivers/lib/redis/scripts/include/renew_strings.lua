-- Renews each lock of a list that is still held under its grant; never shortens one. KEYS: locks. ARGV: for each grant, ttl
-- (ms). Returns a digit for each: 2 renewed, 1 another's, 0 gone, 3 unknown. Redis before version 7 does not know "gt". It is
-- tried once a call, because the other way takes one more command for each lock.
local out, call, pcall, keys, argv, gt = {}, redis.call, redis.pcall, KEYS, ARGV, true
for i = 1, #keys do
    local held, ttl = pcall('getrange', keys[i], '0', '31'), argv[2 * i]
    if held == argv[2 * i - 1] then
        local longer = gt and pcall('pexpire', keys[i], ttl, 'gt')
        gt = type(longer) == 'number'
        -- 0: it lasts longer already, or for ever
        if longer ~= 1 and call('pttl', keys[i]) < ttl + 0 then
            call('pexpire', keys[i], ttl)
        end
        out[i] = '2'
    elseif held == '' then
        out[i] = '0'
    else
        out[i] = (type(held) == 'string' or string.find(held.err, 'WRONGTYPE')) and '1' or '3'
    end
end
return table.concat(out)
