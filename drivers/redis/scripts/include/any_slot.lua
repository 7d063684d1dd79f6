-- In a cluster the keys of a call must be in one slot. So locks of several slots are passed as arguments: their number,
-- then their names. If a lock's slot is elsewhere, the server refuses to read it.
local KEYS, ARGV = KEYS, ARGV
if #KEYS == 0 then
    local count = tonumber(ARGV[1])
    KEYS, ARGV = {unpack(ARGV, 2, count + 1)}, {unpack(ARGV, count + 2)}
end
