-- The lock as a string: see string_acquire.
local function taker(lock, now)
    return function(place, token)
        call('set', lock, grant_of(place) .. ' ' .. token .. ' ' .. now .. '\n' .. note_of(place), 'px',
            tonumber(ttl_of(place)))
    end
end
