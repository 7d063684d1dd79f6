-- A vote for a shared claim: adds it to the holders, unless another grant has the lock exclusively, or a waiting writer has set
-- the bar. If the claim is there already, extends it. The token is as in `ask`. A refused caller leaves its mark on the lock;
-- if only the bar keeps it out, on the bar: the writer takes that mark over (see ask). KEYS: lock, token, holders, shares, bar.
-- ARGV: grant, ttl (ms), note, proposed token (16 digits). Returns 0 if refused. Yes: as ask.
-- include shared
local lock, holders, shares, bar, grant, ttl = KEYS[1], KEYS[3], KEYS[4], KEYS[5], ARGV[1], tonumber(ARGV[2])
local held = call('get', lock)
local now, now_ms = clock()
if held and not is_marker(held) then
    leave_mark(lock, held, '+')
    return 0
end
local ends, share = find(held, holders, shares, grant, now_ms)
if not share and is_barred(bar) then
    leave_mark(lock, held, '+')
    redis.pcall('setrange', bar, '0', '+')
    return 0
end
local token, text = tonumber(ARGV[4]), ARGV[4]
local before = tonumber(call('get', KEYS[2]) or 0)
local fits = token > before and token >= now
if share and token > 0 and sub(share, 1, 16) == text then
    fits = true
elseif fits then
    local life = token - now < 1e9 and '87400000' or string.format('%.0f', (token - now) / 1000 + 86400000)
    call('set', KEYS[2], text, 'px', life)
else
    text = no_token
end
local since = string.format('%016.0f', now)
if not held then
    empty(holders, shares)
end
if not share then
    last_end(holders, shares, now_ms)
    call('hset', shares, grant, text .. ' ' .. (fits and text or since) .. '\n' .. ARGV[3])
elseif fits and sub(share, 1, 16) < text then
    call('hset', shares, grant, text .. sub(share, 17))
end
extend(lock, holders, shares, grant, ends or 0, now_ms, ttl)
if not held then
    make_marker(lock, ' ', since, ttl)
end
return fits and -now or {before + 1, now}
