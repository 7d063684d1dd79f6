-- Acquires or joins a lock of Redisson's layout: a hash in which the owner's field counts its holds. Other fields
-- are ours. Redisson does not look at them, and they go with the hash: "mortise" has "<token> <since, µs>\n<note>";
-- for a shared owner, "mortise:<grant>" says when that grant ends (ms), because a count cannot distinguish a repeat
-- from a second hold, and does not say which hold has ended.
-- KEYS: lock, token. ARGV: grant, ttl (ms), floor of the token or '-' (no tokens), note, owner's field, 1 if shared.
-- Returns the token (1 without tokens); or {remaining ms, token} of this very grant, if it holds already; or
-- {remaining ms, fields, now µs}.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local now_ms, now_text = math.floor(now / 1000), string.format('%s%06d', time[1], time[2])
local fields, hold, owner, ended = redis.call('hgetall', KEYS[1]), {}, nil, {}
for i = 1, #fields, 2 do
    hold[fields[i]] = fields[i + 1]
    if #fields[i] == 40 and string.sub(fields[i], 1, 8) == 'mortise:' then
        if (tonumber(fields[i + 1]) or 0) <= now_ms then
            ended[#ended + 1] = fields[i]
        end
    elseif fields[i] ~= 'mortise' then
        owner = fields[i]
    end
end
local count = owner and string.match(hold[owner], '^%d+$') and tonumber(hold[owner]) or 0
local foreign = owner and count == 0 -- not of this layout
local free = not foreign and count <= #ended
local mine = not free and not foreign and owner == ARGV[5]
local token = mine and hold.mortise and string.match(hold.mortise, '^%d+')
if token == '0' and ARGV[3] ~= '-' then -- its holders have no tokens
    token = nil
end
local stands = ARGV[6] ~= '1' or (tonumber(hold['mortise:' .. ARGV[1]]) or 0) > now_ms
if mine and stands then
    local ends = ARGV[6] == '1' and hold['mortise:' .. ARGV[1]]
    return {ends and ends - now_ms or redis.call('pttl', KEYS[1]), math.max(1, tonumber(token) or 1)}
end
if not free and not mine then
    return {redis.call('pttl', KEYS[1]), foreign and {} or fields, now_text} -- a foreign one may be large
end
local said = token and hold.mortise
if not token then
    token = '0'
    if ARGV[3] ~= '-' then
        local next = math.max(now, (tonumber(redis.call('get', KEYS[2])) or 0) + 1, tonumber(ARGV[3]))
        if next > 9007199254740991 then
            return redis.error_reply('ERR the token has come to its end, 2^53')
        end
        token = string.format('%.0f', next)
        redis.call('set', KEYS[2], token, 'px', math.floor((next - now) / 1000) + 86400000)
    end
end
if free then
    redis.call('del', KEYS[1])
elseif #ended > 0 then
    for i = 1, #ended, 1000 do -- as many as the stack of Lua has room for
        redis.call('hdel', KEYS[1], unpack(ended, i, math.min(i + 999, #ended)))
    end
    redis.call('hincrby', KEYS[1], owner, -#ended)
end
if not said then
    redis.call('hset', KEYS[1], 'mortise', token .. ' ' .. now_text .. '\n' .. ARGV[4])
end
redis.call('hincrby', KEYS[1], ARGV[5], 1)
if ARGV[6] == '1' then
    redis.call('hset', KEYS[1], 'mortise:' .. ARGV[1], string.format('%.0f', now_ms + ARGV[2]))
end
local left = redis.pcall('pttl', KEYS[1])
if type(left) ~= 'number' or left < tonumber(ARGV[2]) then
    local done = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if type(done) == 'table' then -- not permitted: a lock that never ends must not stay
        if free then
            redis.call('del', KEYS[1])
        else
            redis.call('hincrby', KEYS[1], ARGV[5], '-1')
            redis.call('hdel', KEYS[1], 'mortise:' .. ARGV[1])
        end
        return done
    end
end
return math.max(1, tonumber(token))
