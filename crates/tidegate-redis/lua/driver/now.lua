-- Redis's clock, not the caller's: two nodes whose clocks disagree still share one limit. In whole microseconds.
-- Only a test says what time it is; then keys are kept for a day more, because time does not pass as it says.
local now_us, kept_ms = ARGV[3], 86400000
if now_us and now_us ~= '' then
  now_us = tonumber(now_us)
else
  local time = redis.call('TIME')
  now_us, kept_ms = time[1] * 1000000 + time[2], 0
end
