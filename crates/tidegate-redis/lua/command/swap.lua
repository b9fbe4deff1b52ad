-- Replaces a value, unless it has changed since it was read: for changes of the rule.
-- KEYS[1]. ARGV[1]: the value that was read. ARGV[2]: the new one, or empty to delete it. ARGV[4]: its time to live in ms.
local call = redis.call
if call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  call('DEL', KEYS[1])
else
  call('SET', KEYS[1], ARGV[2], 'PX', ARGV[4] + kept_ms)
end
return 1
