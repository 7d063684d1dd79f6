-- Ends the hold that has this token, with all its counts.
-- KEYS: lock. ARGV: token, channel. Returns 2 done, 1 another's, 0 not there.
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
local said = redis.call('hget', KEYS[1], 'mortise')
if not said or string.match(said, '^%d+') ~= ARGV[1] then
    return 1
end
redis.call('del', KEYS[1])
redis.pcall('publish', ARGV[2], '0')
return 2
