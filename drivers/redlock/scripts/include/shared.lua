-- A shared lock. The lock itself is a marker then: a grant id of zeros, which no client has, so everybody takes it for
-- another's. It expires with the holder that lasts longest. Beside it: holders, a sorted set of grants by their end (server
-- ms); shares, a hash of grants: "<token, 16 digits> <since, us>\n<note>". Both count only while the marker is there: if the
-- marker is gone, an exclusive grant may have been here since, so a script that makes a marker empties them first.
local call, sub = redis.call, string.sub
local nobody, no_token = string.rep('0', 32), string.rep('0', 16)
-- A bar that lets readers pass. For a moment after a downgrade, readers that waited for it come before a writer, which sets
-- no bar then.
local open_bar = 'o'
local function is_barred(bar)
    return (call('get', bar) or open_bar) ~= open_bar
end
local function clock()
    local time = call('time')
    local now = time[1] * 1000000 + time[2]
    return now, math.floor(now / 1000)
end
local function is_marker(held)
    return held and sub(held, 1, 32) == nobody
end
-- Leaves a mark on a value of ours: see undo.
local function leave_mark(lock, held, mark)
    local ours = held and string.find(held, '^%d+ %d+\n', 34) and not string.find(sub(held, 1, 32), '%X')
    if ours and string.byte(held, 33) < string.byte(mark) then
        redis.pcall('setrange', lock, '32', mark)
    end
end
-- Makes marker and sets last for so long (ms).
local function expire(lock, holders, shares, ttl)
    for _, key in ipairs({lock, holders, shares}) do
        call('pexpire', key, string.format('%.0f', ttl))
    end
end
-- Removes holders that have ended. Returns the end of the one that lasts longest, or nil.
local function last_end(holders, shares, now_ms)
    for _, grant in ipairs(call('zrangebyscore', holders, '-inf', now_ms)) do
        call('hdel', shares, grant)
        call('zrem', holders, grant)
    end
    return tonumber(call('zrevrange', holders, '0', '0', 'withscores')[2])
end
-- Returns the end of this grant's claim and its share; or nil.
local function find(lock_held, holders, shares, grant, now_ms)
    local ends = is_marker(lock_held) and tonumber(call('zscore', holders, grant) or 0) or 0
    local share = ends > now_ms and call('hget', shares, grant)
    if share then
        return ends, share
    end
end
-- A marker is about to be made, so earlier holders are void: deletes them. Only if there are some, because a script that has
-- written once may go on to write even if the memory is full, and a full node must take no new holders.
local function empty(holders, shares)
    if call('exists', holders, shares) > 0 then
        call('del', holders, shares)
    end
end
-- Adds a holder (ends: 0), or makes it last longer; never shortens. For an existing holder, it begins with a write that a full
-- memory does not refuse: after it, the script may write.
local function extend(lock, holders, shares, grant, ends, now_ms, ttl)
    if now_ms + ttl > ends then
        if ends > 0 then
            call('pexpire', holders, string.format('%.0f', math.max(call('pttl', holders), ttl)))
        end
        call('zadd', holders, string.format('%.0f', now_ms + ttl), grant)
    end
    if call('pttl', lock) < ttl then
        expire(lock, holders, shares, ttl)
    end
end
-- Comes after the sets: if a server refuses one of these commands, no marker is left without an
-- expiry.
local function make_marker(lock, mark, since, ttl)
    local marker = nobody .. mark .. no_token .. ' ' .. since .. '\n(shared)\n0\n'
    call('set', lock, marker, 'px', string.format('%.0f', ttl))
end
-- Makes the lock, which is exclusive under this grant, shared, with this grant as its only holder. It is not shortened. The
-- marker is the last step: if a server refuses any step, the lock is exclusive as before.
local function share_out(lock, holders, shares, grant, held, now_ms, ttl)
    local left = math.max(call('pttl', lock), ttl)
    call('del', holders, shares)
    call('hset', shares, grant, sub(held, 34))
    call('zadd', holders, string.format('%.0f', now_ms + left), grant)
    expire(lock, holders, shares, left)
    make_marker(lock, sub(held, 33, 33), sub(held, 51, 66), left)
end
