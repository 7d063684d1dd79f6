-- A write that needs no memory, is replicated, and changes nothing: it sets the expiry of a lock to what it
-- is.
-- KEYS: lock. Returns an error if the lock is gone, or has no expiry: then nothing was written.
local ends = redis.call('pexpiretime', KEYS[1])
if ends < 0 or redis.call('pexpireat', KEYS[1], string.format('%.0f', ends)) ~= 1 then
    return redis.error_reply('TRYAGAIN the lock has gone')
end
