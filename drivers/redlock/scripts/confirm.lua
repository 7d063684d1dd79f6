-- Writes the token of a grant, if the lock is still the grant's. Never lowers a token. KEYS: lock,
-- token. ARGV: grant, token (16 digits). Returns 1 written, 0 the lock is not this grant's.
local held = redis.call('getrange', KEYS[1], '0', '48')
if string.sub(held, 1, 32) ~= ARGV[1] then
    return 0
end
if string.sub(held, 34) < ARGV[2] then
    redis.call('setrange', KEYS[1], '33', ARGV[2])
end
local token = tonumber(ARGV[2])
if tonumber(redis.call('get', KEYS[2]) or 0) < token then
    local time = redis.call('time')
    local ahead = math.max(token - (time[1] * 1000000 + time[2]), 0) / 1000
    redis.call('set', KEYS[2], ARGV[2], 'px', string.format('%.0f', ahead + 86400000))
end
return 1
