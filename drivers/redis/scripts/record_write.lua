-- Writes a record "<version> <bytes>" if it still has the version that was read (0: there was none).
-- KEYS: record. ARGV: version, bytes. Returns the new version, or 0.
local held = redis.call('get', KEYS[1])
local version = held and string.match(held, '^(%d+) ') or '0'
if version ~= ARGV[1] then
    return 0
end
local next = string.format('%.0f', tonumber(version) + 1)
redis.call('set', KEYS[1], next .. ' ' .. ARGV[2])
return tonumber(next)
