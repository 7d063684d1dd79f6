-- In a cluster the keys of a call must be in one slot. So the locks of several slots come as arguments: their number, then
-- their names. A lock whose slot is elsewhere is refused when it is read.
local KEYS, ARGV = KEYS, ARGV
if #KEYS == 0 then
    local count = tonumber(ARGV[1])
    KEYS, ARGV = {unpack(ARGV, 2, count + 1)}, {unpack(ARGV, count + 2)}
end
