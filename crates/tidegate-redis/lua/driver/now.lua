-- The time of Redis's clock, not of the caller's, in whole microseconds: nodes whose clocks disagree still share one limit.
-- A test can set the time. Then keys live a day longer, because Redis expires them by its own clock.
local now_us, kept_ms = ARGV[3], 86400000
if now_us and now_us ~= '' then
  now_us = tonumber(now_us)
else
  local time = redis.call('TIME')
  now_us, kept_ms = time[1] * 1000000 + time[2], 0
end
