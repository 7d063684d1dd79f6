-- Joins the shared holders of a lock, begins to share it, or waits for that: include/shared.
-- KEYS: lock, token, queue. ARGV: grant, ttl (ms), floor of the token, note, permits, layout; "bar" (it has no
-- queue), "try" (it does not wait in the queue), or a wish (include/queue). Returns the new token; or {remaining ms,
-- token} of this very grant, if it holds already; or, if it has a place, minus the ms after which it must ask again;
-- or {remaining ms, value, now µs, permits, holders}; or {"permits", theirs, value}. With a wish, the fourth form
-- means that an exclusive waiter without a place bars it: it gets no place, because the next shared holder would give
-- the lock to a place.
-- include queue
-- include shared
-- include hand_on
-- include queue_string
-- include queue_hash
-- include hand
local now, hash, permits, wish = now_text(), ARGV[6] == 'hash', tonumber(ARGV[5]), ARGV[7]
local bar = string.gsub(KEYS[3], '}:mortise:queue', '}:mortise:bar', 1)
local share = shared(KEYS[1], KEYS[3], hash, now)
local state, mine = share.open(), false
if share.refused then
    return share.refused
end
-- A client without a queue may lack the right to look at it. Then the queue counts as empty.
local function somebody_waits()
    return call('exists', KEYS[3]) == 1 and (wish ~= 'bar' or next_place('lindex', KEYS[3], '0') ~= nil)
end
-- Or it may lack the right to take places out. Then it lets nobody in. That would have been the first write,
-- so nothing was done.
local function let_in(run, ...)
    if wish ~= 'bar' then
        return run(...)
    end
    local done, first, second = pcall(run, ...)
    if done then
        return first, second
    end
    state = share.open() -- it may have been another error
end
if not share.left(ARGV[1]) and somebody_waits() then
    if state == 'free' then
        local _
        _, mine = let_in(hand, hash, now, ARGV[1])
        state = share.open()
    elseif state == 'shared' then
        mine = let_in(share.admit, KEYS[2], ARGV[1])
    end
end
local left = share.left(ARGV[1])
if left then
    local token, rest = string.match(share.note(ARGV[1]), '^(%d+)(.*)$')
    -- It was given here before its floor was known here. Nobody knows this token yet.
    if tonumber(token) < tonumber(ARGV[3]) then
        token = next_token(KEYS[2], now, ARGV[3])
        if not token then
            return redis.error_reply('ERR the token has come to its end, 2^53')
        end
        share.set_note(ARGV[1], token .. rest)
    end
    return {left, tonumber(token)}
end
local function waits()
    return wish ~= 'bar' and not mine and call('exists', KEYS[3]) == 1
end
-- Returns the ms after which it must ask again; nil: it is not barred. A client without a queue is not notified when the first
-- in the queue gives up.
local function barred()
    local first = wish == 'bar' and state == 'shared' and next_place('lindex', KEYS[3], '0')
    if first and is_fresh(first, now) and not is_share(first) then
        return 1000
    end
    local set = call('get', bar)
    return set and set == (call('get', KEYS[2]) or '') and call('pttl', bar) or nil
end
if state == 'shared' and share.permits ~= permits then
    if wish ~= 'bar' then -- also one that only tries for now may have a place: its inbox broke
        leave(KEYS[3], ARGV[1])
    end
    let_in(share.admit, KEYS[2])
    return {'permits', text(share.permits), share.first()}
end
local has_room = state == 'free' or (state == 'shared' and share.has_room(permits))
local may_join = has_room and not waits()
local barred_ms = may_join and not mine and barred()
if may_join and not barred_ms then
    local token = next_token(KEYS[2], now, ARGV[3])
    if not token then
        return redis.error_reply('ERR the token has come to its end, 2^53')
    end
    local refused = share.add(ARGV[1], math.floor(now / 1000) + ARGV[2], token .. ' ' .. now .. '\n' .. ARGV[4], permits)
    if not refused and mine then
        share.admit(KEYS[2])
    end
    return refused or tonumber(token)
end
local remaining
if state == 'shared' and not has_room then
    remaining = share.first_left()
elseif barred_ms then
    remaining = barred_ms
else
    remaining = call('pttl', KEYS[1])
end
if wish ~= 'bar' and wish ~= 'try' and not barred_ms then
    local note = string.format('%016.0f %010.0f ', ARGV[3], permits) .. ARGV[4]
    return sit(KEYS[3], now, ARGV[1], wish, note, remaining)
end
local held = false
if state == 'shared' then
    held = share.first()
elseif state ~= 'free' and not hash then
    held = call('getrange', KEYS[1], '0', '4095') -- it may be anybody's, and large
elseif state ~= 'free' then
    local ours = call('hmget', KEYS[1], 'o', 't', 's')
    held = ours[1] and ours[2] and ours[3] and call('hgetall', KEYS[1]) or {}
end
return {remaining, held, now, share.count and share.permits or 0, share.count or 0}
