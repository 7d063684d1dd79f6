-- Extends each shared vote of a list that the node still has. If a vote is exclusive here, its downgrade has not reached
-- this node: it becomes shared now. KEYS: for each: lock, holders, shares. ARGV: for each: grant, ttl (ms). Returns a
-- digit for each: 2 renewed, 1 another has the lock, 0 gone, 3 unknown.
-- include shared
local _, now_ms = clock()
local function renew(lock, holders, shares, grant, ttl)
    local held = redis.pcall('get', lock)
    if type(held) == 'table' then
        return string.find(held.err, 'WRONGTYPE') and '1' or '3'
    end
    if held and sub(held, 1, 32) == grant then
        share_out(lock, holders, shares, grant, held, now_ms, ttl)
        held = nobody
    end
    local ends = find(held, holders, shares, grant, now_ms)
    if ends then
        extend(lock, holders, shares, grant, ends, now_ms, ttl)
    end
    return ends and '2' or (held and not is_marker(held)) and '1' or '0'
end
local out = {}
for i = 1, #ARGV / 2 do
    local known, digit =
        pcall(renew, KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
    if not known then
        digit = type(digit) == 'table' and digit.err or digit
        if not string.find(digit, 'WRONGTYPE') then -- READONLY, say
            return redis.error_reply(string.match(digit, '%u%u+ .*') or digit)
        end
        digit = '3' -- somebody has made a key beside this lock: the others are renewed nevertheless
    end
    out[i] = digit
end
return table.concat(out)
