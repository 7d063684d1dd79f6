-- Ends the grant that has this token, of any client, and hands the lock on.
-- KEYS: lock, token, queue. ARGV: token, channel; the command to publish, if not PUBLISH. Returns 2 done, 1
-- another's, 0 not there.
-- include queue
-- include shared
-- include hand_on
-- include queue_string
local held = call('get', KEYS[1])
if not held then
    return 0
end
if string.match(held, '^%x+ (%d+) ') ~= ARGV[1] then
    return 1
end
local time = call('time')
local now = time[1] .. sub('00000' .. time[2], -6)
if not hand_on(KEYS[1], KEYS[2], KEYS[3], call('lpop', KEYS[3]), now, nil, taker(KEYS[1], now)) then
    if not ARGV[3] or redis.pcall('pubsub', 'shardnumsub', ARGV[2])[2] ~= 0 then
        redis.pcall(ARGV[3] or 'publish', ARGV[2], '')
    end
end
return 2
