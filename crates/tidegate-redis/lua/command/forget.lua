-- Deletes the state of a key.
local call = redis.call
return call('DEL', KEYS[1])
