-- Acquires a lock that is free and nobody's turn, joins the owner's hold, or waits. The lock is a hash as in
-- hash_acquire.
-- KEYS: lock, token, queue. ARGV: grant, ttl (ms), floor of the token, note, owner; wish (include/queue): without
-- one, it only tries. Returns the token; or {remaining ms, token} of this very grant, if it holds already; or, if it
-- has a place, minus the ms after which it must ask again; or {remaining ms, fields, now µs}.
local time = redis.call('time')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local now_ms = math.floor(now / 1000)
local fields, hold, live, last, ended, ours
local function read()
    fields, hold, live, last, ended = redis.call('hgetall', KEYS[1]), {}, 0, 0, {}
    for i = 1, #fields, 2 do
        local field, ends = fields[i], tonumber(fields[i + 1]) or 0
        hold[field] = fields[i + 1]
        if #field == 34 and string.sub(field, 1, 2) == 'g:' then
            if ends > now_ms then
                live, last = live + 1, math.max(last, ends)
            else
                ended[#ended + 1], ended[#ended + 2] = field, 'n:' .. string.sub(field, 3)
            end
        end
    end
    ours = #fields == 0 or (hold.o and tonumber(hold.t) and hold.s)
end
read()
local waiting = redis.call('exists', KEYS[3]) == 1
-- include queue
-- include shared
-- include hand_on
-- include queue_hash
-- the lock is free although somebody waits: its holder has died
if waiting and ours and live == 0 and hand_on_hash(KEYS[1], KEYS[2], KEYS[3], now, ARGV[1]) then
    read()
end
-- False: no token is left.
local function renew_token()
    local token = next_token(KEYS[2], now, ARGV[3])
    hold.t = token or hold.t
    return token and redis.call('hset', KEYS[1], 't', token)
end
local function no_token()
    return redis.error_reply('ERR the token has come to its end, 2^53')
end
local tokenless = ours and live > 0 and tonumber(hold.t) <= 1 -- its holders have no tokens: they know of none that is written here
if ours and live > 0 and (tonumber(hold['g:' .. ARGV[1]]) or 0) > now_ms then
    -- It was given here before its floor was known here. If nobody shares the lock, nobody knows
    -- this token yet.
    local low = tonumber(hold.t) < tonumber(ARGV[3]) and live == 1
    if (low or tokenless) and not renew_token() then
        return no_token()
    end
    return {hold['g:' .. ARGV[1]] - now_ms, tonumber(hold.t)}
end
local note = #ARGV[5] .. ' ' .. ARGV[5] .. ARGV[4]
local joins = ours and live > 0 and ARGV[5] ~= '' and hold.o == ARGV[5]
if not ours or (live > 0 and not joins) then
    local remaining = ours and last - now_ms or redis.call('pttl', KEYS[1])
    if not ARGV[6] then
        return {remaining, ours and fields or {}, now} -- what is not of this layout may be large
    end
    return sit(KEYS[3], now, ARGV[1], ARGV[6], note, remaining)
end
if not joins then
    local token = next_token(KEYS[2], now, ARGV[3])
    if not token then
        return no_token()
    end
    local refused, ends = begin(KEYS[1], now, ARGV[1], token, ARGV[2], ARGV[5], ARGV[4])
    if not refused then
        pcall(join, KEYS[1], KEYS[3], now, ARGV[5], token, ends) -- an error would be taken for a refusal of the whole
    end
    return refused or tonumber(token)
end
if tokenless and not renew_token() then
    return no_token()
end
if #ended > 0 then
    for i = 1, #ended, 1000 do -- as many as the stack of Lua has room for
        redis.call('hdel', KEYS[1], unpack(ended, i, math.min(i + 999, #ended)))
    end
end
if waiting then -- before it holds: if the user may not do this, nothing of the grant must stay
    leave(KEYS[3], ARGV[1])
end
local ends = add(KEYS[1], now, ARGV[1], ARGV[2], ARGV[4])
if ends > last then
    local done = redis.pcall('pexpireat', KEYS[1], text(ends))
    if type(done) == 'table' then
        redis.call('hdel', KEYS[1], 'g:' .. ARGV[1], 'n:' .. ARGV[1])
        return done
    end
end
return tonumber(hold.t)
