-- A vote: gives the lock to a grant where it is free; where the grant has it already, for so long again. The token that
-- the client proposes is taken if it is larger than all before and not behind the clock, or the grant's already. Zero is
-- never taken.
-- KEYS: lock, token. ARGV: grant, ttl (ms), note, proposed token (16 digits).
-- Who is refused leaves its mark there (see undo), so that the holder's release meets it however soon it comes.
-- 0 the lock is another's; yes: minus now in us, where the token was taken; else {smallest token that may be, now}.
local held = redis.call('get', KEYS[1])
if held and string.sub(held, 1, 32) ~= ARGV[1] then
    if string.find(held, '%X') == 33 and string.find(held, '^ %d+ %d+\n', 33) then
        redis.pcall('setrange', KEYS[1], '32', '+')
    end
    return 0
end
local time = redis.call('time')
local now, token, text = time[1] * 1000000 + time[2], tonumber(ARGV[4]), ARGV[4]
local last = tonumber(redis.call('get', KEYS[2]) or 0)
local fits = token > last and token >= now
if held and token > 0 and string.sub(held, 34, 49) == text then
    fits = true
elseif fits then
    local life = token - now < 1e9 and '87400000' or string.format('%.0f', (token - now) / 1000 + 86400000)
    redis.call('set', KEYS[2], text, 'px', life)
else
    text = '0000000000000000'
end
if not held then
    local since = fits and text or string.format('%016.0f', now)
    redis.call('set', KEYS[1], ARGV[1] .. ' ' .. text .. ' ' .. since .. '\n' .. ARGV[3], 'px', ARGV[2])
else
    if fits and string.sub(held, 34, 49) < text then
        redis.call('setrange', KEYS[1], '33', text)
    end
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
end
return fits and -now or {math.max(last + 1, now), now}
