-- Ends the grant that has this token, of any client.
-- KEYS: lock. ARGV: token, channel; the command to publish, if not PUBLISH. Returns 2 done, 1 another's, 0 not there.
local held = redis.call('get', KEYS[1])
if not held then
    return 0
end
if string.match(held, '^%x+ (%d+) ') ~= ARGV[1] then
    return 1
end
redis.call('del', KEYS[1])
if not ARGV[3] or redis.pcall('pubsub', 'shardnumsub', ARGV[2])[2] ~= 0 then
    redis.pcall(ARGV[3] or 'publish', ARGV[2], '')
end
return 2
