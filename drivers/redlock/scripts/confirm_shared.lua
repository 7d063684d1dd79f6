-- Writes the token of a shared claim, if the claim is still there. Other holders may have written theirs since the token was
-- proposed. No two holders have the same token, so it must be larger than all. KEYS: lock, token, holders, shares. ARGV: grant,
-- token (16 digits). Returns 1 written, 0 the claim is not there, else minus the smallest token that is large enough.
-- include shared
local now, now_ms = clock()
local _, share = find(call('get', KEYS[1]), KEYS[3], KEYS[4], ARGV[1], now_ms)
local token, before = tonumber(ARGV[2]), tonumber(call('get', KEYS[2]) or 0)
if not share then
    return 0
elseif sub(share, 1, 16) == ARGV[2] then
    return 1
elseif token <= before then
    return -(before + 1)
end
call('hset', KEYS[4], ARGV[1], ARGV[2] .. sub(share, 17))
call('set', KEYS[2], ARGV[2], 'px', string.format('%.0f', math.max(token - now, 0) / 1000 + 86400000))
return 1
