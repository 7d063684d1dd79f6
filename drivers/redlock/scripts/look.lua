-- The holder of this lock: nothing, or {remaining ms, value, now in us}. A key that is no string is no lock.
-- KEYS: lock.
local time = redis.call('time')
local held = redis.pcall('get', KEYS[1])
if type(held) ~= 'string' then
    return false
end
local now = string.format('%.0f', time[1] * 1000000 + time[2])
return {redis.call('pttl', KEYS[1]), string.sub(held, 1, 4096), now}
