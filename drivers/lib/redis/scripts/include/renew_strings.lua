-- Renews many locks, each where it is still under its grant; never shortens one.
-- KEYS: locks. ARGV: for each grant, ttl (ms).
-- For each a digit: 2 renewed, 1 another's, 0 gone, 3 it cannot be told.
local out, call, pcall, keys, argv = {}, redis.call, redis.pcall, KEYS, ARGV
for i = 1, #keys do
    local held = pcall('getrange', keys[i], '0', '31')
    if held == argv[2 * i - 1] then
        if call('pttl', keys[i]) < argv[2 * i] + 0 then
            call('pexpire', keys[i], argv[2 * i])
        end
        out[i] = '2'
    elseif held == '' then
        out[i] = '0'
    else
        out[i] = (type(held) == 'string' or string.find(held.err, 'WRONGTYPE')) and '1' or '3'
    end
end
return table.concat(out)
