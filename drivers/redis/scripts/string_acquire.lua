-- Acquires a free lock: a string "<grant> <token> <since, µs>\n<note>" that expires.
-- KEYS: lock, token. ARGV: grant, ttl (ms), floor of the token, note. Returns the new token; or {remaining ms, token}
-- of this very grant, if it holds already; or {remaining ms, value, now µs}.
local held = redis.call('get', KEYS[1])
if held and string.sub(held, 1, 32) == ARGV[1] then
    return {redis.call('pttl', KEYS[1]), tonumber((string.match(held, '^%x+ (%d+)')))}
end
local time = redis.call('time')
local now_text = string.format('%s%06d', time[1], time[2])
if held then
    return {redis.call('pttl', KEYS[1]), string.sub(held, 1, 4096), now_text} -- it may be anybody's, and large
end
-- the hybrid clock: it still grows if the data or the clock is lost, but not if both are lost at
-- once
local last, now = redis.call('get', KEYS[2]), tonumber(now_text)
local token, text, life = math.max((tonumber(last) or 0) + 1, tonumber(ARGV[3])), now_text, '86400000'
if token > 9007199254740991 then
    return redis.error_reply('ERR the token has come to its end, 2^53')
elseif token > now then
    text = string.format('%.0f', token)
    life = string.format('%.0f', (token - now) / 1000 + 86400000)
else
    token = now
end
redis.call('set', KEYS[2], text, 'px', life)
redis.call('set', KEYS[1], ARGV[1] .. ' ' .. text .. ' ' .. now_text .. '\n' .. ARGV[4], 'px', ARGV[2])
return token
