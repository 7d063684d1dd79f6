-- Renews a lock where it is under this grant; never shortens it.
-- KEYS: lock. ARGV: grant, ttl (ms). 2 renewed, 1 another's, 0 not there.
local held = redis.call('getrange', KEYS[1], '0', '31')
if held ~= ARGV[1] then
    return held == '' and 0 or 1
end
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('pexpire', KEYS[1], ARGV[2])
end
return 2
