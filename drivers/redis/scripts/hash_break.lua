-- Ends the hold that has this token, with all its grants.
-- KEYS: lock. ARGV: token, channel; the command to publish, if not PUBLISH. Returns 2 done, 1 another's, 0 not there.
local token = redis.call('hget', KEYS[1], 't')
if not token then
    return 0
end
if token ~= ARGV[1] then
    return 1
end
redis.call('del', KEYS[1])
if not ARGV[3] or redis.pcall('pubsub', 'shardnumsub', ARGV[2])[2] ~= 0 then
    redis.pcall(ARGV[3] or 'publish', ARGV[2], '')
end
return 2
