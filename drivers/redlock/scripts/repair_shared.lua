-- Adds a shared claim again in a node that lost it, for a grant that a quorum has, with its token. A new marker gets a mark,
-- because nobody knows any more whether a caller was refused (see undo).
-- KEYS: lock, token, holders, shares. ARGV: grant, ttl (ms), token (16 digits), note. Returns 2 done, 1 another has the
-- lock.
-- include shared
local held = call('get', KEYS[1])
if held and not is_marker(held) then
    return 1
end
local now, now_ms = clock()
local since = string.format('%016.0f', now)
if not held then
    empty(KEYS[3], KEYS[4])
end
call('hset', KEYS[4], ARGV[1], ARGV[3] .. ' ' .. since .. '\n' .. ARGV[4])
extend(KEYS[1], KEYS[3], KEYS[4], ARGV[1], 0, now_ms, tonumber(ARGV[2]))
if not held then
    make_marker(KEYS[1], '+', since, ARGV[2])
end
local token = tonumber(ARGV[3])
if tonumber(call('get', KEYS[2]) or 0) < token then
    call('set', KEYS[2], ARGV[3], 'px', string.format('%.0f', math.max(token - now, 0) / 1000 + 86400000))
end
return 2
