-- Puts a state in the place of another, if nobody has changed that: for changes of rule.
-- KEYS[1]; ARGV[1]: the value that was seen; ARGV[2]: the new one, or nothing; ARGV[4]: how long it lives, in ms.
local call = redis.call
if call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  call('DEL', KEYS[1])
else
  call('SET', KEYS[1], ARGV[2], 'PX', ARGV[4] + kept_ms)
end
return 1
