-- An exclusive lock of this grant becomes shared, with this grant as its only holder, and is renewed. Notifies waiters, if
-- there are any: readers may come in, and for half a second no writer bars them. The mark stays for the release. No command
-- that can fail follows the write that makes it shared, so an error means that it is not shared. KEYS: lock, holders, shares,
-- bar. ARGV: grant, ttl (ms), channel. Returns 2 done, or it was shared already; 1 another has the lock, 0 gone.
-- include shared
local lock, holders, shares, grant = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local _, now_ms = clock()
local held = call('get', lock)
if held and sub(held, 1, 32) == grant then
    share_out(lock, holders, shares, grant, held, now_ms, tonumber(ARGV[2]))
    redis.pcall('set', KEYS[4], open_bar, 'px', '500')
    if sub(held, 33, 33) ~= ' ' then
        redis.pcall('publish', ARGV[3], sub(held, 33, 33))
    end
    return '2'
end
local ends = find(held, holders, shares, grant, now_ms)
if not ends then
    return (held and not is_marker(held)) and '1' or '0'
end
extend(lock, holders, shares, grant, ends, now_ms, tonumber(ARGV[2]))
return '2'
