-- Reads a lock in a cluster. MULTI would need all keys at one node, which fails while a slot is on its
-- way.
-- KEYS: lock. ARGV: layout; queue, if there is one. Returns {value or fields, pttl, time, waiters}.
local held
if ARGV[1] == 'hash' then
    held = redis.pcall('hgetall', KEYS[1])
else
    held = redis.pcall('getrange', KEYS[1], '0', '4095')
end
local waiters = ARGV[2] and redis.pcall('llen', ARGV[2])
return {held, redis.call('pttl', KEYS[1]), redis.call('time'), type(waiters) == 'number' and waiters or 0}
