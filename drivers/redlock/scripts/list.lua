-- A page of the locks whose names begin with a prefix, and their holders. A key that is no string is no lock.
-- KEYS: none. ARGV: cursor, prefix. {next cursor, {key, {remaining ms, value, now in us}}, ...}
local pattern = string.gsub(ARGV[2], '[%*%?%[%]%^\\]', '\\%0') .. '*'
local page = redis.call('scan', ARGV[1], 'match', pattern, 'count', '500')
local time = redis.call('time')
local now, out = string.format('%.0f', time[1] * 1000000 + time[2]), {page[1]}
for _, key in ipairs(page[2]) do
    local held = redis.pcall('get', key)
    if type(held) == 'string' then
        out[#out + 1] = {key, {redis.call('pttl', key), string.sub(held, 1, 4096), now}}
    end
end
return out
