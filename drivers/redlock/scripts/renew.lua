-- Renews many locks, each where it is under its grant; never shortens one.
-- KEYS: locks. ARGV: for each grant, ttl (ms).
-- For each a digit: 2 renewed, 1 another's, 0 not there, 3 it cannot be told.
local out, call, pcall = {}, redis.call, redis.pcall
for i = 1, #KEYS do
    local held = pcall('getrange', KEYS[i], '0', '31')
    if held == ARGV[2 * i - 1] then
        if call('pttl', KEYS[i]) < tonumber(ARGV[2 * i]) then
            call('pexpire', KEYS[i], ARGV[2 * i])
        end
        out[i] = '2'
    elseif held == '' then
        out[i] = '0'
    else
        out[i] = (type(held) == 'string' or string.find(held.err, 'WRONGTYPE')) and '1' or '3'
    end
end
return table.concat(out)
