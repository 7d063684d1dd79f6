-- Gives a free lock to the first waiter, and notifies its inbox. If that waiter asks to share, the sharing waiters behind it
-- get the lock, too, as long as there is room. `place` is the first place, popped already. Skipped are: places that are not
-- fresh; places whose inbox nobody listens to; and all sharing places, if this user may not make the first of them a holder.
-- These get a message to ask again (token 0), because the lock may be free. So does a place that is refused for another
-- reason. take(place, token) makes the lock, or returns an error. The caller itself, `self`, is not given the lock: if its turn
-- comes, all places before it were skipped. Returns true if the lock is another's now, else it is nobody's; and true if `self`
-- was the next, whose place is removed then.
local function hand_on(lock, tokens, queue, place, now, self, take, hash)
    local mine, forbidden = false, false
    while place do
        if grant_of(place) == self then
            mine = true
            break
        end
        if is_fresh(place, now) and not (forbidden and is_share(place)) then
            local share = is_share(place) and shared(lock, queue, hash, now)
            local floor, permits, note = sub(place, 110, 125), nil, nil
            if share then
                floor, permits, note = share_of(place)
            end
            local token = next_token(tokens, now, floor)
            if not token then
                break
            end
            local refused
            if share then
                note = token .. ' ' .. now .. '\n' .. note
                refused = share.add(grant_of(place), math.floor(now / 1000) + ttl_of(place), note, permits)
            else
                refused = take(place, token)
            end
            forbidden = forbidden or (share and refused and is_forbidden(refused))
            if refused and not (share and forbidden) then
                tell(place, '0')
                break
            elseif not refused and tell(place, token) then
                return true, share and share.admit(tokens, self)
            elseif share and not refused then
                share.remove(grant_of(place))
            end
        end
        if forbidden and is_share(place) then
            tell(place, '0')
        end
        place = next_place('lpop', queue)
    end
    call('del', lock)
    return false, mine
end
