-- A vote: sets the lock for a grant if it is free; if the grant has it already, extends it. Takes the token that the client
-- proposes if it is larger than all before and not behind the clock, or is the grant's already. Zero is never taken. If
-- another grant has the lock, leaves a mark on it, so that even an immediate release wakes the waiters (see undo). A new
-- lock has a mark from the beginning if its client had to wait for it (pubsub.c). KEYS: lock, token; and the bar, if this
-- client has lately set it (undo_shared): a vote removes the bar, and takes over the mark on it. ARGV: grant, ttl (ms),
-- note, proposed token (16 digits), the mark of a new lock (a space: none). Returns 0 if another grant has it. Yes: minus
-- now in us, if the token was taken; else {largest token before + 1, now}. The client decides how far a token follows
-- `now`: this clock may be wrong.
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
    local mark = ARGV[5]
    if KEYS[3] then
        local bar = redis.call('get', KEYS[3])
        mark = mark == ' ' and bar ~= 'o' and bar or mark -- 'o': it has let readers pass
        redis.call('del', KEYS[3])
    end
    redis.call('set', KEYS[1], ARGV[1] .. mark .. text .. ' ' .. since .. '\n' .. ARGV[3], 'px', ARGV[2])
else
    if fits and string.sub(held, 34, 49) < text then
        redis.call('setrange', KEYS[1], '33', text)
    end
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
end
return fits and -now or {last + 1, now}
