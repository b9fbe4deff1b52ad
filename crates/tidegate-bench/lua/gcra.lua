-- GCRA as scripts in use today have it (redis_rate's form): seconds as a floating-point number, a key with an expiry in
-- seconds, and numbers that go back as text.
-- KEYS[1]; ARGV: burst, rate, period in seconds, cost.
redis.replicate_commands()
local interval = ARGV[3] / ARGV[2]
local cost = tonumber(ARGV[4])
local time = redis.call('TIME')
local now = (time[1] - 1483228800) + (time[2] / 1000000)
local tat = redis.call('GET', KEYS[1])
tat = math.max(tat and tonumber(tat) or now, now)
local new_tat = tat + interval * cost
local spare = now - (new_tat - interval * ARGV[1])
local remaining = spare / interval
if remaining < 0 then
  return {0, 0, tostring(-spare), tostring(tat - now)}
end
local reset_after = new_tat - now
if reset_after > 0 then
  redis.call('SET', KEYS[1], new_tat, 'EX', math.ceil(reset_after))
end
return {cost, remaining, tostring(-1), tostring(reset_after)}
