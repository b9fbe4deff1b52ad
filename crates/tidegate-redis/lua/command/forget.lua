-- Forgets a key.
local call = redis.call
return call('DEL', KEYS[1])
