-- The queue of the waiters for a lock, in their order: a list of places. A place has parts of fixed width, so that
-- scripts cut it without matching. Its numbers have leading zeros, and compare as text:
--   grant 1-32, seen (µs) 34-49, least (ms) 51-60, till (µs) 62-77, ttl (ms) 79-88, stamp 90-108, floor of the
--   token 110-125, inbox 127-172, then a line's end and the note.
-- The stamp is by the waiter's clock: when it sent the request that made or refreshed the place. Least is the
-- shortest ttl among this place and those before it. Till: the queue lives at least until then.
local call, sub = redis.call, string.sub
local function grant_of(place)
    return sub(place, 1, 32)
end
local function ttl_of(place)
    return sub(place, 79, 88)
end
local function note_of(place)
    return sub(place, 174)
end
local function text(number)
    return string.format('%.0f', number)
end
-- now: µs, as text of 16 digits. Returns nil if no token is left.
local function next_token(key, now, floor)
    local last = call('get', key)
    if (not last or (#last == 16 and last < now)) and tonumber(floor) <= tonumber(now) then
        call('set', key, now, 'px', '86400000')
        return now
    end
    local token = math.max((tonumber(last) or 0) + 1, tonumber(floor), tonumber(now))
    if token > 9007199254740991 then
        return nil
    end
    call('set', key, text(token), 'px', text(math.floor((token - now) / 1000) + 86400000))
    return text(token)
end
-- Returns the first place, read (lindex) or popped (lpop), in a script that has written already; nil: there is none. In a slot
-- that is on its way, the server refuses to touch a queue that has just become empty. That must not end the script half-way.
local function next_place(verb, queue, ...)
    local place = redis.pcall(verb, queue, ...)
    return type(place) == 'string' and place or nil
end
-- Removes all places of the grant. True: there was one.
local function leave(queue, grant)
    local left = false
    for _, place in ipairs(call('lrange', queue, 0, -1)) do
        if grant_of(place) == grant then
            call('lrem', queue, 1, place)
            left = true
        end
    end
    return left
end
-- Whether the place was made or refreshed within two thirds of its ttl, so that its client has a
-- third left.
local function is_fresh(place, now)
    return #place > 172 and 3 * (now - sub(place, 34, 49)) < 2000 * ttl_of(place)
end
-- Removes the places before the own one that are not fresh. Returns the index of the own place, from 0, and
-- the place before it.
local function find_place(queue, now, grant)
    local at, before = 0, nil
    for _, place in ipairs(call('lrange', queue, 0, -1)) do
        if grant_of(place) == grant then
            return at, before
        elseif is_fresh(place, now) then
            at, before = at + 1, place
        else
            call('lrem', queue, 1, place)
        end
    end
    return nil, before
end
-- Makes the queue live for at least twice the ttl, and not shorter than now. Returns an error if that is refused.
local function live_on(queue, ttl)
    local left = redis.pcall('pttl', queue)
    local done = type(left) == 'table' and left or left < 2 * ttl and redis.pcall('pexpire', queue, text(2 * ttl))
    return type(done) == 'table' and done
end
-- Makes or refreshes a place. wish: "n", and the part of the place that the waiter sets, 79-172; "a" instead: it may
-- have a place already. remaining: of the holder's time, ms; -1: for ever. Returns minus the ms after which the waiter
-- must ask again, because by then the least time of the places before it, or the holder's, is over; or an error: it has no
-- place.
local function sit(queue, now, grant, wish, note, remaining)
    local at, before
    if sub(wish, 1, 1) == 'a' then
        at, before = find_place(queue, now, grant)
    else
        before = call('lindex', queue, '-1')
    end
    local ttl = sub(wish, 2, 11)
    local least, till = ttl, before and sub(before, 62, 77) or ''
    if before and sub(before, 51, 60) < least then
        least = sub(before, 51, 60)
    end
    local long = not at and before and till - now > 1000 * ttl
    if not long then
        till = text(now + 2000 * ttl)
    end
    local place = grant .. ' ' .. now .. ' ' .. least .. ' ' .. till .. ' ' .. sub(wish, 2) .. '\n' .. note
    if at then
        call('lset', queue, at, place)
    else
        call('rpush', queue, place)
    end
    local refused = not long and live_on(queue, ttl)
    -- The own place goes, because its `till` would be wrong for those behind it. If it cannot be removed, the queue goes,
    -- because a queue must not stay for ever.
    if refused and type(redis.pcall('lrem', queue, 1, place)) == 'table' then
        call('del', queue)
    end
    least = tonumber(least)
    return refused or -(remaining >= 0 and remaining < least and remaining + 1 or least)
end
-- Whether the place's client is gone, because nobody listens to its inbox. If the user may not ask,
-- the client counts as there.
local function is_deaf(place)
    return redis.pcall('pubsub', 'numsub', sub(place, 127, 172))[2] == 0
end
-- Sends a message to the place's inbox. False: its client is gone. In a cluster (the inbox is "…:n…") clients at other nodes
-- hear what is published here, too. They must not hear of a grant that is taken back, so the message is published only if the
-- client listens here.
local function tell(place, token)
    local inbox = sub(place, 127, 172)
    if sub(inbox, 15, 15) == 'n' and (redis.pcall('pubsub', 'numsub', inbox)[2] or 0) == 0 then
        return false
    end
    local told = redis.pcall('publish', inbox, grant_of(place) .. ' ' .. token .. ' ' .. sub(place, 90, 108))
    return type(told) == 'number' and told > 0
end
