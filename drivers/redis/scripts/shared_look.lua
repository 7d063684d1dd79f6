-- Who shares a lock.
-- KEYS: lock, holders, shares. ARGV: layout, queue.
-- Returns {now µs, permits, waiters, then for each holder: grant, remaining ms, "<token> <since>\n<note>"}, by token;
-- no holders if nobody shares it; permits -1 if there is a marker whose holders are void.
-- include queue
-- include shared
local time = call('time')
local now, found = time[1] .. sub('00000' .. time[2], -6), {}
local share = shared(KEYS[1], ARGV[2], ARGV[1] == 'hash', now)
local state = share.open()
if share.refused and not string.find(share.refused.err, 'WRONGTYPE') then -- that is nobody's who shares
    return share.refused
end
local all = share.count and share.all() or {}
for i = 1, #all, 2 do
    local note = share.note(all[i])
    found[#found + 1] = {all[i], share.left(all[i]), note, tonumber(string.match(note, '^%d+')) or 0}
end
table.sort(found, function(a, b) return a[4] < b[4] end)
local waiters = redis.pcall('llen', ARGV[2]) -- a client with `queue = no` may lack the right
local out = {now, state == 'broken' and -1 or share.count and share.permits or 0, type(waiters) == 'number' and waiters or 0}
for _, each in ipairs(found) do
    for i = 1, 3 do
        out[#out + 1] = each[i]
    end
end
return out
