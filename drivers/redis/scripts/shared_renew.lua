-- Renews each shared holder of a list that still holds; never shortens one.
-- KEYS: for each lock, queue. ARGV: layout; for each grant, ttl (ms). In a cluster, one lock, and only keys that
-- certainly exist. KEYS: lock, holders, shares. ARGV: layout, grant, ttl, queue. Returns a digit for each: 2 renewed,
-- 1 the lock is another's, 0 gone, 3 unknown.
-- include queue
-- include shared
local time, out = call('time'), {}
local now = time[1] .. sub('00000' .. time[2], -6)
local function renew(lock, queue, grant, ttl)
    local share = shared(lock, queue, ARGV[1] == 'hash', now)
    local state = share.open()
    if share.refused then
        return string.find(share.refused.err, 'WRONGTYPE') and '1' or '3'
    elseif share.renew(grant, ttl) then
        return '2'
    end
    return state == 'other' and '1' or '0'
end
if #ARGV == 4 then
    return renew(KEYS[1], ARGV[4], ARGV[2], ARGV[3])
end
local forbidden
for i = 1, #KEYS / 2 do
    local known, digit = pcall(renew, KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i], ARGV[2 * i + 1])
    if not known then
        local words = words_of(digit)
        words = string.match(words, '%u%u+ .*') or words
        if is_forbidden(digit) then -- to take out a holder of this lock that has ended, say
            forbidden = words
        elseif not is_foreign(digit) then -- READONLY, say
            return redis.error_reply(words)
        end
        digit = '3' -- or somebody has made a key beside this lock: the others are renewed nevertheless
    end
    out[i] = digit
end
local digits = table.concat(out)
if forbidden and not string.find(digits, '[^3]') then -- it is the words that help then
    return redis.error_reply(forbidden)
end
return digits
