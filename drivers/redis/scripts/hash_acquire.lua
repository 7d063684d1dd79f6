-- Acquires a lock, or joins the owner's hold. The lock is a hash that expires with the last of its grants. Fields: o
-- the owner, t the token, s since when (µs); for each grant g:<grant> the instant (ms) at which it ends, and
-- n:<grant> its note. Without an owner, the lock belongs to one grant.
-- KEYS: lock, token. ARGV: grant, ttl (ms), floor of the token or '-' (no tokens), note, owner. Returns the token (1
-- without tokens); or {remaining ms, token} of this very grant, if it holds already; or {remaining ms, fields, now
-- µs} of another hold.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local now_ms, now_text = math.floor(now / 1000), string.format('%s%06d', time[1], time[2])
local fields, hold, live, last, ended = redis.call('hgetall', KEYS[1]), {}, 0, 0, {}
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
local ours = hold.o and tonumber(hold.t) and hold.s
if #fields > 0 and not ours then -- not of this layout, and maybe large
    return {redis.call('pttl', KEYS[1]), {}, now_text}
end
local stands = live > 0 and (tonumber(hold['g:' .. ARGV[1]]) or 0) > now_ms
if live > 0 and not stands and (ARGV[5] == '' or hold.o ~= ARGV[5]) then
    return {last - now_ms, fields, now_text}
end
local token, ends = live > 0 and hold.t or '1', string.format('%.0f', now_ms + ARGV[2])
if ARGV[3] ~= '-' and tonumber(token) <= 1 then -- free, or its holders have no tokens: they know of none that is written here
    local next = math.max(now, (tonumber(redis.call('get', KEYS[2])) or 0) + 1, tonumber(ARGV[3]))
    if next > 9007199254740991 then
        return redis.error_reply('ERR the token has come to its end, 2^53')
    end
    token = string.format('%.0f', next)
    redis.call('set', KEYS[2], token, 'px', math.floor((next - now) / 1000) + 86400000)
    if live > 0 then
        redis.call('hset', KEYS[1], 't', token)
    end
end
if stands then
    return {hold['g:' .. ARGV[1]] - now_ms, tonumber(token)}
end
if live == 0 then
    redis.call('del', KEYS[1])
    redis.call('hset', KEYS[1], 'o', ARGV[5], 't', token, 's', now_text)
elseif #ended > 0 then
    for i = 1, #ended, 1000 do -- as many as the stack of Lua has room for
        redis.call('hdel', KEYS[1], unpack(ended, i, math.min(i + 999, #ended)))
    end
end
redis.call('hset', KEYS[1], 'g:' .. ARGV[1], ends, 'n:' .. ARGV[1], ARGV[4])
if tonumber(ends) > last then
    local done = redis.pcall('pexpireat', KEYS[1], ends)
    if type(done) == 'table' then -- not permitted: a lock that never ends must not stay
        if live == 0 then
            redis.call('del', KEYS[1])
        else
            redis.call('hdel', KEYS[1], 'g:' .. ARGV[1], 'n:' .. ARGV[1])
        end
        return done
    end
end
return tonumber(token)
