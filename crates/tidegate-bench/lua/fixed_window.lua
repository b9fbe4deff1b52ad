-- The plain fixed window: a counter that expires. KEYS[1]; ARGV: count, period in seconds.
local used = redis.call('GET', KEYS[1])
if used and tonumber(used) >= tonumber(ARGV[1]) then
  return 0
end
if used then
  redis.call('INCRBY', KEYS[1], 1)
else
  redis.call('SET', KEYS[1], 1)
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
return 1
