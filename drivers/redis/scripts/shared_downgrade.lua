-- Makes an exclusive hold without an owner the first holder of a shared phase without permits, and renews it.
-- KEYS: lock, token, queue. ARGV: grant, ttl (ms), channel, layout, "queue" or "news" (no queue). Returns 2
-- done, or it is shared already; 1 another's, 0 not there.
-- include queue
-- include shared
local time, hash = call('time'), ARGV[4] == 'hash'
local now, grant = time[1] .. sub('00000' .. time[2], -6), ARGV[1]
local now_ms = math.floor(now / 1000)
local share = shared(KEYS[1], KEYS[3], hash, now)
local state, note, ends = share.open(), nil, now_ms + ARGV[2]
if share.refused then
    return share.refused
elseif share.renew(grant, ARGV[2]) then
    return 2
elseif state ~= 'other' then
    return 0
elseif hash then
    local hold = call('hmget', KEYS[1], 'o', 't', 's', 'g:' .. grant, 'n:' .. grant)
    if hold[1] == '' and hold[2] and hold[3] and (tonumber(hold[4]) or 0) > now_ms then
        note, ends = hold[2] .. ' ' .. hold[3] .. '\n' .. (hold[5] or ''), math.max(ends, hold[4])
    end
else
    local held = call('get', KEYS[1])
    if held and sub(held, 1, 32) == grant then
        note, ends = sub(held, 34), math.max(ends, now_ms + call('pttl', KEYS[1]))
    end
end
if not note then
    return call('exists', KEYS[1])
end
call('pexpireat', KEYS[1], text(ends)) -- first what a full memory does not refuse: the script may write then
local refused = share.add(grant, ends, note, 0)
if refused then
    return refused
end
-- The downgrade is done. An error after this point would be taken for a refusal of the whole.
local given = false
if ARGV[5] == 'queue' then
    local done, _, admitted = pcall(share.admit, KEYS[2])
    given = done and admitted
else
    redis.pcall('set', (string.gsub(KEYS[3], '}:mortise:queue', '}:mortise:bar', 1)), 'open', 'px', '500')
end
if not given then
    if not ARGV[6] or redis.pcall('pubsub', 'shardnumsub', ARGV[3])[2] ~= 0 then
        redis.pcall(ARGV[6] or 'publish', ARGV[3], '')
    end
end
return 2
