-- Writes a record "<version> <bytes>" if it is still of the version that was read (0: it is not there).
-- KEYS: record. ARGV: version, bytes. The new version, or 0.
local held = redis.call('get', KEYS[1])
local version = held and string.match(held, '^(%d+) ') or '0'
if version ~= ARGV[1] then
    return 0
end
local next = string.format('%.0f', tonumber(version) + 1)
redis.call('set', KEYS[1], next .. ' ' .. ARGV[2])
return tonumber(next)
