-- Shared holders of a lock. The lock's key is a marker then: protocol.md has the keys, and says what each state means. Needs
-- include/queue. shared:<25 digits>: no grant has such an id
local function is_phase(value)
    return sub(value, 1, 7) == 'shared:'
end
-- A place of the queue that asks to share has floor, permits and note where other places have their
-- note.
local function is_share(place)
    return sub(place, 110, 125) == '9999999999999999'
end
local function share_of(place)
    return sub(place, 174, 189), tonumber(sub(place, 191, 200)) or -1, sub(place, 202)
end
-- The error with which a command was refused, or nil.
local function words_of(refused)
    return type(refused) == 'table' and refused.err or refused
end
-- Whether an ACL forbids it. The words of Redis 7.2 differ from those of earlier versions.
local function is_forbidden(refused)
    local words = words_of(refused)
    return string.find(words, 'The user executing the script', 1, true) or string.find(words, 'ACL failure in script', 1, true)
end
-- Whether a key has another type, because another program has made it.
local function is_foreign(refused)
    return string.find(words_of(refused), 'WRONGTYPE', 1, true)
end
-- now: µs, as text of 16 digits. hash: whether the lock is a hash.
local function shared(lock, queue, hash, now)
    local s, now_ms = {}, math.floor(now / 1000)
    local holders = string.gsub(queue, '}:mortise:queue', '}:mortise:holders', 1)
    local notes = string.gsub(queue, '}:mortise:queue', '}:mortise:shares', 1)
    local function read_phase()
        local phase
        if hash then
            phase = redis.pcall('hget', lock, 'o')
        else
            phase = redis.pcall('getrange', lock, '0', '31')
        end
        if type(phase) == 'table' then
            s.refused = phase
        elseif phase and #phase == 32 and is_phase(phase) then
            return phase
        end
    end
    local function finish()
        call('del', lock, holders, notes)
        s.count = nil
    end
    -- Returns an error if nothing was done. A user may lack the right to one of the two keys, and a holder that is in only one
    -- of them breaks the phase. So the first command changes nothing, and is refused if the last one would be.
    local function drop(grants)
        call('hdel', notes, '')
        for i = 1, #grants, 1000 do -- as many as the stack of Lua has room for
            local last = math.min(i + 999, #grants)
            call('zrem', holders, unpack(grants, i, last))
            call('hdel', notes, unpack(grants, i, last))
        end
        s.count = s.count - #grants
    end
    local function last_end()
        return call('zrevrange', holders, '0', '0', 'withscores')[2]
    end
    -- Marker and holders end with the last of them: at that instant, if it is known.
    local function settle(last)
        last = last or text(last_end())
        if hash then
            call('hset', lock, 'g:' .. s.phase, last)
        end
        call('pexpireat', holders, last)
        call('pexpireat', notes, last)
        call('pexpireat', lock, last)
        -- Before Redis 7.2, the expiry clock goes on while a script runs, so a key whose end comes meanwhile is
        -- gone.
        if call('exists', lock, holders, notes) < 3 then
            finish()
        end
    end
    function s.open()
        s.count, s.phase = nil, read_phase()
        if not s.phase then
            return (s.refused or call('pttl', lock) ~= -2) and 'other' or 'free'
        end
        local known, count = call('hmget', notes, 'phase', 'permits'), call('zcard', holders)
        if known[1] ~= s.phase or call('hlen', notes) ~= count + 2 then
            return 'broken'
        end
        local ended = call('zrangebyscore', holders, '-inf', text(now_ms))
        if #ended == count then
            finish()
            return 'free'
        end
        s.count, s.permits = count, tonumber(known[2])
        if #ended > 0 then
            drop(ended)
        end
        return 'shared'
    end
    -- The ms that are left to the grant; nil: it does not hold.
    function s.left(grant)
        local ends = s.count and call('zscore', holders, grant)
        return ends and ends - now_ms or nil
    end
    function s.first_left()
        return call('zrange', holders, '0', '0', 'withscores')[2] - now_ms
    end
    function s.note(grant)
        return call('hget', notes, grant)
    end
    function s.set_note(grant, note)
        call('hset', notes, grant, note)
    end
    function s.first()
        local grant = call('zrange', holders, '0', '0')[1]
        return grant .. ' ' .. call('hget', notes, grant)
    end
    function s.all()
        return call('zrange', holders, '0', '-1', 'withscores')
    end
    function s.has_room(permits)
        return s.count and s.permits == permits and (permits == 0 or s.count < permits)
    end
    -- Commands that may be refused come before the lock is touched, because in a slot that is on its way the server refuses to
    -- make a key. A joining holder must not be refused half-way either, because this user may lack the right to remove it. So
    -- the marker's end is set first.
    local function write(grant, ends, note, begins)
        if begins then
            if call('exists', holders, notes) > 0 then -- of holders whose marker is gone
                call('del', holders, notes)
            end
            call('zscore', holders, grant) -- else it could neither end what begins here, nor let others in
            call('hset', notes, 'phase', s.phase, 'permits', text(s.permits))
        else
            call('zadd', holders, 'xx', '0', '') -- changes nothing: it is refused if the one below would be
            settle(text(math.max(ends, last_end())))
            if not s.count then
                error('TRYAGAIN the last holder has ended meanwhile', 0)
            end
        end
        call('hset', notes, grant, note)
        call('zadd', holders, text(ends), grant)
        if begins then
            call('pexpireat', holders, text(ends))
            call('pexpireat', notes, text(ends))
        end
        if begins and hash then
            call('del', lock)
            s.touched = true
            call('hset', lock, 'o', s.phase, 't', '0', 's', now, 'n:' .. s.phase, string.match(note, '\n(.*)$'))
        elseif begins then
            call('set', lock, s.phase .. ' ' .. note, 'px', text(ends - now_ms))
            s.touched = true
        end
        if begins then
            settle(text(ends))
        end
    end
    -- note: "<token> <since>\n<note>". Joins the phase, or begins one in place of what the lock is. Returns an error if
    -- nothing was done.
    function s.add(grant, ends, note, permits)
        local begins = not s.count
        if begins then
            s.phase, s.permits, s.count, s.touched = 'shared:' .. sub(grant, 1, 25), permits, 0, false
        end
        s.count = s.count + 1
        local done, refused = pcall(write, grant, ends, note, begins)
        if done then
            return nil
        elseif not begins then
            s.count = s.count and s.count - 1
            pcall(settle) -- as it was
        elseif s.touched then
            finish()
        else
            pcall(call, 'del', holders, notes) -- refused, too, if the server refuses to make them
            s.count = nil
        end
        return type(refused) == 'table' and refused or redis.error_reply(refused)
    end
    function s.remove(grant)
        if s.count == 1 then
            finish()
        else
            drop({grant})
            settle()
        end
    end
    -- Never shortens. First a write that a full memory does not refuse: after it, the script may
    -- write.
    function s.renew(grant, ttl)
        local left = s.left(grant)
        if left and left < ttl + 0 then
            call('pexpireat', holders, text(math.max(now_ms + ttl, last_end())))
            call('zadd', holders, text(now_ms + ttl), grant)
            local done, refused = pcall(settle)
            if not done then -- the marker of N is as it was: a later renewal must not take it for longer
                redis.pcall('zadd', holders, 'xx', text(now_ms + left), grant)
                error(refused, 0)
            end
        end
        return left
    end
    -- Lets in, from the head of the queue and in order, the places that ask to share, as long as there is room. A place with
    -- another number of permits must not delay the others: it gets a message to ask again (token 0), and is refused then. An
    -- exclusive place whose client is gone must not delay them either. If a place cannot be added, or no token is left for it,
    -- it gets that message, too, and nobody behind it is let in. A place of a grant that holds is removed: its acquire was
    -- executed twice. Returns true if it was the turn of `self`, whose place is removed then.
    function s.admit(tokens, self)
        local place, given = next_place('lindex', queue, '0'), nil
        while place do
            local grant = grant_of(place)
            local floor, permits, note = share_of(place)
            local alive = grant == self or (is_fresh(place, now) and not s.left(grant))
            local misfit = s.count and is_share(place) and permits ~= s.permits
            if alive and not misfit and not (is_share(place) and s.has_room(permits)) then
                if grant == self or is_share(place) or not is_deaf(place) then
                    break
                end
                alive = false
            end
            call('lpop', queue)
            if grant == self then
                return true, given
            end
            if alive and misfit then
                tell(place, '0')
            elseif alive then
                local token = next_token(tokens, now, floor)
                if not token or s.add(grant, now_ms + ttl_of(place), token .. ' ' .. now .. '\n' .. note, permits) then
                    tell(place, '0') -- its place is gone: it asks itself
                    break
                end
                if tell(place, token) then
                    given = true
                elseif not pcall(s.remove, grant) then
                    break -- it holds until its ttl is over, or its client asks; and so might those behind it
                end
            end
            place = next_place('lindex', queue, '0')
        end
        return false, given
    end
    -- A place has left the queue, so others behind it may share. They must ask by themselves if this user may not read
    -- the holders, or if these cannot be read because another program has made one of the keys.
    function s.let_in(tokens)
        local done, refused = pcall(function()
            if s.open() == 'shared' then
                s.admit(tokens)
            end
        end)
        if not done and not is_forbidden(refused) and not is_foreign(refused) then
            error(refused, 0)
        end
    end
    return s
end
