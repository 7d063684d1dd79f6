-- Sets a bar: an exclusive waiter keeps new shared holders out for a while. The bar counts until the next grant, which changes
-- the token. After a downgrade, no bar is set for a moment ("open"), so that shared waiters come first.
-- KEYS: lock, token, queue. ARGV: layout, how long (ms). The bar is not written again while more than half of its
-- time is left, because each write goes to the log and the replicas. The waiter comes again before that half is over.
-- Returns the ms that are left to the lock, or to the half; -2: nobody shares it.
-- include queue
-- include shared
local time = call('time')
local share = shared(KEYS[1], KEYS[3], ARGV[1] == 'hash', time[1] .. sub('00000' .. time[2], -6))
local state = share.open()
if state ~= 'shared' and state ~= 'broken' then
    return -2
end
local bar = string.gsub(KEYS[3], '}:mortise:queue', '}:mortise:bar', 1)
local set, token, remaining = call('get', bar), call('get', KEYS[2]) or '', call('pttl', KEYS[1])
if remaining == -2 then -- before Redis 7.2 it may end while the script runs
    return -2
end
local half = ARGV[2] / 2
local spare = set == token and call('pttl', bar) - half or 0
if spare > 0 and spare <= half then -- more is left to it if the clock was set back
    return remaining >= 0 and remaining < spare and remaining or spare
elseif set ~= 'open' then
    call('set', bar, token, 'px', ARGV[2])
end
return remaining
