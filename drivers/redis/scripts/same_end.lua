-- A write that needs no memory, is replicated, and changes nothing: the end of a lock is set to what it is.
-- KEYS: lock. An error if it has gone, or has no end: then nothing was written.
local ends = redis.call('pexpiretime', KEYS[1])
if ends < 0 or redis.call('pexpireat', KEYS[1], string.format('%.0f', ends)) ~= 1 then
    return redis.error_reply('TRYAGAIN the lock has gone')
end
