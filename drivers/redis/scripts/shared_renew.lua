-- Renews shared holders of many locks, each where it stands; never shortens what is there.
-- KEYS: for each lock, queue. ARGV: layout; for each grant, ttl (ms).
-- For each a digit: 2 renewed, 1 the lock is another's, 0 gone, 3 it cannot be told.
-- include queue
-- include shared
local time, out = call('time'), {}
local now = time[1] .. sub('00000' .. time[2], -6)
for i = 1, #KEYS / 2 do
    local share = shared(KEYS[2 * i - 1], KEYS[2 * i], ARGV[1] == 'hash', now)
    local state = share.open()
    if share.refused then
        out[i] = string.find(share.refused.err, 'WRONGTYPE') and '1' or '3'
    elseif share.renew(ARGV[2 * i], ARGV[2 * i + 1]) then
        out[i] = '2'
    else
        out[i] = state == 'other' and '1' or '0'
    end
end
return table.concat(out)
