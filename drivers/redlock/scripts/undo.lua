-- Deletes a lock if it is this grant's. Announces that if ARGV 3 asks for it and the lock has a mark: a character behind
-- the grant that every refused caller leaves. A larger mark means a longer wait; the message is the largest mark.
-- Compares marks as bytes, because the order of letters depends on the server's locale. Leaves a mark on another's lock.
-- KEYS: lock. ARGV: grant, channel, whether to tell (0 no; 1 yes; if the vote brought a mark along: 2, or 3 if the client
-- itself listens here), mark. Returns 2 deleted, 3 deleted and announced (with ARGV 3 = 2 or 3: clients other than this
-- one heard it); 0 not there; else the holder: {remaining ms, value, now in us}.
local held = redis.call('getrange', KEYS[1], '0', '32')
if string.sub(held, 1, 32) == ARGV[1] then
    redis.call('del', KEYS[1])
    local mark = string.sub(held, 33)
    if ARGV[3] ~= '0' and mark ~= ' ' then
        local heard = redis.pcall('publish', ARGV[2], mark)
        return type(heard) == 'number' and heard < ARGV[3] - 1 and 2 or 3
    end
    return 2
elseif held == '' then
    return 0
end
local time, value = redis.call('time'), redis.call('get', KEYS[1])
local ours = (string.find(held, '%X') or 33) == 33 and #held == 33
if ours and string.byte(held, 33) < string.byte(ARGV[4]) and string.find(value, '^%d+ %d+\n', 34) then
    redis.pcall('setrange', KEYS[1], '32', ARGV[4])
end
return {redis.call('pttl', KEYS[1]), value, string.format('%.0f', time[1] * 1000000 + time[2])}
