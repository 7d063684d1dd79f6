-- Who has these locks: for each nothing, or {remaining ms, value, now in us}. A key that is no string is no lock.
-- KEYS: locks.
local time = redis.call('time')
local now, out = string.format('%.0f', time[1] * 1000000 + time[2]), {}
for i = 1, #KEYS do
    local held = redis.pcall('get', KEYS[i])
    out[i] = type(held) == 'string' and {redis.call('pttl', KEYS[i]), string.sub(held, 1, 4096), now} or false
end
return out
