-- A page of the locks whose names begin with a prefix, and their holders.
-- KEYS: none. ARGV: cursor, prefix. {next cursor, {key, holder as in look}, ...}
-- include look
local pattern = string.gsub(ARGV[2], '[%*%?%[%]%^\\]', '\\%0') .. '*'
local page = redis.call('scan', ARGV[1], 'match', pattern, 'count', '500')
-- As key_add_side() makes them: the part of a name in braces decides where a cluster has its keys.
local function beside(name, word)
    local open = string.find(name, '{', 1, true)
    local shut = open and string.find(name, '}', open + 1, true)
    if shut and shut > open + 1 then
        return string.sub(name, open, shut) .. ':mortise:' .. word .. ':' .. name
    end
    return '{' .. name .. '}:mortise:' .. word
end
local out = {page[1]}
for _, key in ipairs(page[2]) do
    local held = look(key, beside(key, 'holders'), beside(key, 'shares'))
    if held then
        out[#out + 1] = {key, held}
    end
end
return out
