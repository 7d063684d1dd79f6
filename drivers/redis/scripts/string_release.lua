-- Releases a lock that is held under this grant, and notifies the waiters.
-- KEYS: lock. ARGV: grant, channel; the command to publish, if not PUBLISH. Returns 2 done, 1 another's, 0 not there.
local held = redis.call('getrange', KEYS[1], '0', '31')
if held ~= ARGV[1] then
    return held == '' and 0 or 1
end
redis.call('del', KEYS[1])
if not ARGV[3] or redis.pcall('pubsub', 'shardnumsub', ARGV[2])[2] ~= 0 then
    redis.pcall(ARGV[3] or 'publish', ARGV[2], '')
end
return 2
