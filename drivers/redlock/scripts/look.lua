-- Returns the holders of this lock. KEYS: lock, holders, shares.
-- include look
return look(KEYS[1], KEYS[2], KEYS[3]) or false
