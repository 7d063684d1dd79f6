-- Sets a lock again in a node that lost it, for a grant that a quorum has, with its token. It gets a mark, because nobody
-- knows any more whether a caller was refused (see undo).
-- KEYS: lock, token. ARGV: grant, ttl (ms), token (16 digits), note. Returns 2 done, 1 there is a lock already.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local value = string.format('%s+%s %016.0f\n%s', ARGV[1], ARGV[3], now, ARGV[4])
if not redis.call('set', KEYS[1], value, 'nx', 'px', ARGV[2]) then
    return 1
end
local token = tonumber(ARGV[3])
if token > 0 and tonumber(redis.call('get', KEYS[2]) or 0) < token then
    redis.call('set', KEYS[2], ARGV[3], 'px', string.format('%.0f', math.max(token - now, 0) / 1000 + 86400000))
end
return 2
