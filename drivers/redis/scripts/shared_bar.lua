-- An exclusive waiter keeps new shared holders out for a while. The bar counts until the next grant, which changes the token.
-- After a downgrade, those who share come first for a moment: "open".
-- KEYS: lock, token, queue. ARGV: layout, how long (ms).
-- The ms that are left to the lock; -2: nobody shares it.
-- include queue
-- include shared
local time = call('time')
local share = shared(KEYS[1], KEYS[3], ARGV[1] == 'hash', time[1] .. sub('00000' .. time[2], -6))
local state = share.open()
if state ~= 'shared' and state ~= 'broken' then
    return -2
end
local bar = string.gsub(KEYS[3], '}:mortise:queue', '}:mortise:bar', 1)
if call('get', bar) ~= 'open' then
    call('set', bar, call('get', KEYS[2]) or '', 'px', ARGV[2])
end
return call('pttl', KEYS[1])
