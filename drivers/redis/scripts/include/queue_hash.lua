-- The lock as a hash: see hash_acquire. The note of a place is "<length of the owner> <owner><note>".
local function owner_of(note)
    local length, rest = string.match(note, '^(%d+) (.*)$')
    return sub(rest, 1, tonumber(length)), sub(rest, tonumber(length) + 1)
end
local function add(lock, now, grant, ttl, note)
    local ends = math.floor(now / 1000) + ttl
    call('hset', lock, 'g:' .. grant, text(ends), 'n:' .. grant, note)
    return ends
end
-- Those that wait on behalf of the owner that holds now hold with it.
local function join(lock, queue, now, owner, token, last)
    if owner == '' or call('exists', queue) == 0 then
        return
    end
    for _, place in ipairs(call('lrange', queue, 0, -1)) do
        local its, own
        if is_fresh(place, now) then
            its, own = owner_of(note_of(place))
        end
        if its == owner then
            local grant = grant_of(place)
            call('lrem', queue, 1, place)
            local ends = add(lock, now, grant, ttl_of(place), own)
            if tell(place, token) then
                last = math.max(last, ends)
                call('pexpireat', lock, text(last))
            else
                call('hdel', lock, 'g:' .. grant, 'n:' .. grant)
            end
        end
    end
end
-- A lock that never ends must not stay: the error, if it cannot be made to.
local function begin(lock, now, grant, token, ttl, owner, note)
    call('del', lock)
    call('hset', lock, 'o', owner, 't', token, 's', now)
    local ends = add(lock, now, grant, ttl, note)
    local done = redis.pcall('pexpireat', lock, text(ends))
    if type(done) == 'table' then
        call('del', lock)
        return done
    end
    return nil, ends
end
local function hand_on_hash(lock, tokens, queue, now, self)
    local whose, which, till
    local handed, mine = hand_on(lock, tokens, queue, call('lpop', queue), now, self, function(place, token)
        local own, refused
        whose, own = owner_of(note_of(place))
        which = token
        refused, till = begin(lock, now, grant_of(place), token, ttl_of(place), whose, own)
        return refused
    end, true)
    if handed and whose and call('hget', lock, 'o') == whose then
        join(lock, queue, now, whose, which, till)
    end
    return handed, mine
end
