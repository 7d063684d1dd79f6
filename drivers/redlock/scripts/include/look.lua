-- Returns who has a lock: nil, or {remaining ms, value, now in us}; for a shared lock, also a list of its holders: remaining ms
-- and value of each. A key that is no string is no lock.
local function look(lock, holders, shares)
    local held = redis.pcall('get', lock)
    if type(held) ~= 'string' then
        return nil
    end
    local time = redis.call('time')
    local now = time[1] * 1000000 + time[2]
    local out = {redis.call('pttl', lock), string.sub(held, 1, 4096), string.format('%.0f', now)}
    if string.sub(held, 1, 32) ~= string.rep('0', 32) then
        return out
    end
    local all, found = redis.call('zrange', holders, '0', '-1', 'withscores'), {}
    for i = 1, #all, 2 do
        local left = math.floor(all[i + 1] - now / 1000)
        local share = left > 0 and redis.call('hget', shares, all[i])
        if share then
            found[#found + 1] = left
            found[#found + 1] = all[i] .. ' ' .. share
        end
    end
    out[4] = found
    return out
end
