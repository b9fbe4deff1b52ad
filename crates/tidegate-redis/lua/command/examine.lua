-- Tries every command that the other scripts use, on a key with their prefix. Returns the errors.
local key = KEYS[1]
local tries = {
  {'TIME'},
  {'SET', key, 'x', 'PX', '1000'},
  {'GET', key},
  {'SETRANGE', key, '0', 'y'},
  {'GETRANGE', key, '0', '0'},
  {'PEXPIRE', key, '1000'},
  {'DEL', key},
  {'HSET', key, 'a', 'b'},
  {'HGET', key, 'a'},
  {'HGETALL', key},
  {'HDEL', key, 'a'},
  {'ZADD', key, '1', 'a'},
  {'ZRANGE', key, '0', '-1'},
  {'ZREMRANGEBYSCORE', key, '-inf', '0'},
  {'ZREM', key, 'a'},
}
local reply = {}
for _, try in ipairs(tries) do
  local answer = redis.pcall(unpack(try))
  if type(answer) == 'table' and answer.err then reply[#reply + 1] = try[1] .. ': ' .. answer.err end
end
return reply
