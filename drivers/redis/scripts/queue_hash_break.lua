-- Ends the hold that has this token, with all its grants, and hands the lock on.
-- KEYS: lock, token, queue. ARGV: token, channel; the command to publish, if not PUBLISH. Returns 2 done, 1 another's,
-- 0 not there.
-- include queue
-- include shared
-- include hand_on
-- include queue_hash
local token = call('hget', KEYS[1], 't')
if not token then
    return 0
end
if token ~= ARGV[1] then
    return 1
end
local time = call('time')
if not hand_on_hash(KEYS[1], KEYS[2], KEYS[3], time[1] .. sub('00000' .. time[2], -6), nil) then
    if not ARGV[3] or redis.pcall('pubsub', 'shardnumsub', ARGV[2])[2] ~= 0 then
        redis.pcall(ARGV[3] or 'publish', ARGV[2], '')
    end
end
return 2
