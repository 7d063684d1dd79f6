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
-- The waiters of the owner that holds now get the lock, too.
local function join(lock, queue, now, owner, token, last)
    if owner == '' or redis.pcall('exists', queue) ~= 1 then -- refused: see next_place()
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
-- Overwrites what the lock was. The key is not deleted if the former grants can be removed from it, because in a slot that is
-- on its way the server refuses to make a key. A lock that never ends must not stay: if its end cannot be set, it is deleted,
-- and the error is returned.
local function begin(lock, now, grant, token, ttl, owner, note)
    local former, ends, gone = call('hgetall', lock), math.floor(now / 1000) + ttl, {}
    for i = 1, #former, 2 do
        if #former[i] > 1 and sub(former[i], 3) ~= grant then
            gone[#gone + 1] = former[i]
        end
    end
    for i = 1, #gone, 1000 do -- as many as the stack of Lua has room for
        if type(redis.pcall('hdel', lock, unpack(gone, i, math.min(i + 999, #gone)))) == 'table' then
            call('del', lock) -- this user may not remove fields
            break
        end
    end
    local done = #former > 0 and redis.pcall('pexpireat', lock, text(ends))
    if type(done) ~= 'table' then
        call('hset', lock, 'o', owner, 't', token, 's', now)
        add(lock, now, grant, ttl, note)
        done = done == 1 and 1 or redis.pcall('pexpireat', lock, text(ends)) -- 0: the key was gone
    end
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
    -- The lock is another's now. An error after this point would be taken for a refusal of the whole.
    if handed and whose and redis.pcall('hget', lock, 'o') == whose then
        pcall(join, lock, queue, now, whose, which, till)
    end
    return handed, mine
end
