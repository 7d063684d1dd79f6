-- Returns a page of the locks whose names begin with a prefix, and their holders. If a key beside a lock is of another type,
-- the page says that the lock is shared, but not by whom: an error would hide the other locks. KEYS: none. ARGV: cursor,
-- prefix. {next cursor, {key, holder as in look}, ...}; not told by whom: {remaining ms, marker, "0", nil}
-- include look
local pattern = string.gsub(ARGV[2], '[%*%?%[%]%^\\]', '\\%0') .. '*'
local page = redis.call('scan', ARGV[1], 'match', pattern, 'count', '500')
-- Four letters that have the name's slot in a cluster: make_slot_tag() in keys.c explains this.
local flips = {0x1afa, 0x06ed, 0x277b, 0x110c, 0x2a91, 0x39c0, 0x1f63,
               0x277f, 0x1104, 0x2208, 0x1bea, 0x04cd, 0x233b, 0x198c}
local function slot_tag(name)
    local crc, low_bits = 0, 0
    for i = 1, #name do
        crc = bit.bxor(crc, bit.lshift(string.byte(name, i), 8))
        for _ = 1, 8 do
            crc = bit.bxor(bit.lshift(bit.band(crc, 0x7fff), 1), crc >= 0x8000 and 0x1021 or 0)
        end
    end
    local wanted = bit.bxor(bit.band(crc, 0x3fff), 0x3639)
    for i = 0, 13 do
        if bit.band(bit.rshift(wanted, i), 1) == 1 then
            low_bits = bit.bxor(low_bits, flips[i + 1])
        end
    end
    local function letter(shift)
        return string.char(bit.bor(0x40, bit.band(bit.rshift(low_bits, shift), 0xf)))
    end
    return letter(12) .. letter(8) .. letter(4) .. letter(0)
end
-- The same keys as key_add_side() in keys.c makes.
local function beside(name, word)
    local open = string.find(name, '{', 1, true)
    local shut = open and string.find(name, '}', open + 1, true)
    if shut and shut > open + 1 then
        return string.sub(name, open, shut) .. ':mortise:' .. word .. ':' .. name
    elseif string.find(name, '}', 1, true) then
        return '{' .. slot_tag(name) .. '}:mortise:' .. word .. ':' .. name
    end
    return '{' .. name .. '}:mortise:' .. word
end
local out = {page[1]}
for _, key in ipairs(page[2]) do
    local done, held = pcall(look, key, beside(key, 'holders'), beside(key, 'shares'))
    if not done and not string.find(type(held) == 'table' and held.err or held, 'WRONGTYPE', 1, true) then
        return type(held) == 'table' and held or redis.error_reply(held)
    elseif not done then
        held = {redis.call('pttl', key), string.rep('0', 32) .. ' ', '0', false}
    end
    if held then
        out[#out + 1] = {key, held}
    end
end
return out
