-- Takes a lock away where it is under this grant, and where asked to says so to who waits: whoever was refused here has
-- left a mark on it, a '+' behind the grant. Leaves that mark on another's.
-- KEYS: lock. ARGV: grant, channel, whether to tell (1 or 0).
-- 2 done, 0 not there; another's: {remaining ms, value, now in us}.
local held = redis.call('getrange', KEYS[1], '0', '32')
if string.sub(held, 1, 32) == ARGV[1] then
    redis.call('del', KEYS[1])
    if ARGV[3] == '1' and string.sub(held, 33) ~= ' ' then
        redis.pcall('publish', ARGV[2], '')
    end
    return 2
elseif held == '' then
    return 0
end
local time, value = redis.call('time'), redis.call('get', KEYS[1])
if string.find(value, '^%x+ %d+ %d+\n') == 1 and string.sub(value, 33, 33) == ' ' then
    redis.pcall('setrange', KEYS[1], '32', '+')
end
return {redis.call('pttl', KEYS[1]), value, string.format('%.0f', time[1] * 1000000 + time[2])}
