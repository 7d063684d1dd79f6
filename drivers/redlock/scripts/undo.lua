-- Takes a lock away where it is under this grant, and where asked to says so to who waits.
-- KEYS: lock. ARGV: grant, channel, whether to tell (1 or 0).
-- 2 done, 0 not there; another's: {remaining ms, value, now in us}.
local held = redis.call('getrange', KEYS[1], '0', '31')
if held == ARGV[1] then
    redis.call('del', KEYS[1])
    if ARGV[3] == '1' then
        redis.pcall('publish', ARGV[2], '')
    end
    return 2
elseif held == '' then
    return 0
end
local time = redis.call('time')
return {redis.call('pttl', KEYS[1]), redis.call('get', KEYS[1]), string.format('%.0f', time[1] * 1000000 + time[2])}
