-- Ends one shared holder, or takes its places out of the queue, and lets in the waiters that may follow.
-- KEYS: lock, token, queue. ARGV: grant, or "token:<token>"; channel, layout, "queue" or "news" (no queue).
-- Returns 2 done, 1 another's, 0 not there.
-- include queue
-- include shared
-- include hand_on
-- include queue_string
-- include queue_hash
-- include hand
local now, hash, grant = now_text(), ARGV[3] == 'hash', ARGV[1]
local share = shared(KEYS[1], KEYS[3], hash, now)
local token, handed, left = string.match(grant, '^token:(%d+)$'), false, false
local done, state = pcall(share.open)
-- Another program has made the lock's key, or one beside it. Nobody shares the lock any more, but the grant may still have a
-- place in the queue to leave.
if not done and not token and is_foreign(state) then
    state = 'broken'
elseif not done then
    error(state, 0)
end
if share.refused and (token or not is_foreign(share.refused)) then
    return share.refused
end
if token then
    grant = nil
    for _, each in ipairs(share.count and share.all() or {}) do
        local note = #each == 32 and share.note(each)
        grant = note and string.match(note, '^%d+') == token and each or grant
    end
end
local mine = grant and share.left(grant)
if mine then
    share.remove(grant)
end
if ARGV[4] == 'queue' and call('exists', KEYS[3]) == 1 then
    local _
    if not token then
        left = leave(KEYS[3], grant)
    end
    if share.count then
        _, handed = share.admit(KEYS[2])
    elseif mine or state == 'free' then
        handed = hand(hash, now, nil)
    end
end
if mine and not handed then
    if not ARGV[5] or redis.pcall('pubsub', 'shardnumsub', ARGV[2])[2] ~= 0 then
        redis.pcall(ARGV[5] or 'publish', ARGV[2], '')
    end
end
if mine then
    return 2
elseif share.refused and not left then
    return share.refused
end
return (state == 'other' or (token and state ~= 'free')) and 1 or 0
