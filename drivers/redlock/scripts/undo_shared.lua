-- As undo, for a claim that may be shared, and for votes that a refused caller takes back. The marker is deleted with the last
-- holder, and that is announced. KEYS: lock, holders, shares, bar. ARGV: grant, channel, whether to tell (as undo), mark, and
-- who asks: "-" nobody that was refused; "reader"; "writer"; "waiter", a writer that waits, and bars new readers for two
-- seconds if others share the lock, unless that was downgraded a moment ago. Returns 2 deleted, 3 deleted and announced; 0
-- nobody is in the way; else who is: {remaining ms, value, now in us}; for a shared lock, also the number of holders, and one
-- of them as a value.
-- include shared
local lock, holders, shares, bar, grant, who = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[5]
local held = call('get', lock)
local now, now_ms = clock()
local function delete()
    local mark = sub(held, 33, 33)
    call('del', lock, holders, shares)
    held = false
    if ARGV[3] ~= '0' and mark ~= ' ' then
        redis.pcall('publish', ARGV[2], mark)
        return 3
    end
    return 2
end
local done, ends
if held and sub(held, 1, 32) == grant then
    return delete()
elseif is_marker(held) then
    ends = find(held, holders, shares, grant, now_ms)
    call('zrem', holders, grant)
    call('hdel', shares, grant)
    local till = last_end(holders, shares, now_ms)
    if not till then
        done = delete()
    elseif call('pttl', lock) > till - now_ms then
        expire(lock, holders, shares, till - now_ms)
    end
end
if ends then
    return done or 2
end
local text, shared = string.format('%.0f', now), is_marker(held)
if who == 'reader' and (shared or not held) and is_barred(bar) then
    leave_mark(lock, held, ARGV[4])
    return {call('pttl', bar), 'a waiting writer', text}
elseif not held or (shared and (who == '-' or who == 'reader')) then
    return 0
end
leave_mark(lock, held, ARGV[4])
if not shared then
    return {call('pttl', lock), held, text}
end
if who == 'waiter' and is_barred(bar) then
    call('pexpire', bar, '2000')
elseif who == 'waiter' then
    call('set', bar, ' ', 'nx', 'px', '2000')
end
local first = call('zrange', holders, '0', '0')[1]
return {call('pttl', lock), held, text, call('zcard', holders), first .. ' ' .. (call('hget', shares, first) or '')}
