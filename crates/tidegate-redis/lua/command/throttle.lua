-- CL.THROTTLE: the debt of a key, under a rate that comes with the request. Twin of tidegate-core/src/throttle.rs.
-- KEYS[1]  Its value, three doubles: when it was written, and when the debt is paid, in whole microseconds and the
--          remaining nanoseconds.
-- ARGV[1]  The price (below zero: a refund) and the largest debt, each in whole microseconds, rounded down, and the
--          remaining nanoseconds.
-- Returns whether the request is admitted (1 or 0), and the debt before: microseconds and nanoseconds.
local call, encode, decode = redis.call, struct.pack, struct.unpack
local price_us, price_rest, capacity_us, capacity_rest = decode('<dddd', ARGV[1])
local value = call('GET', KEYS[1])
local debt_us, debt_rest = 0, 0
if value then
  local written_us, full_us, full_rest = decode('<ddd', value)
  local step_us = written_us - now_us
  if step_us > 1000000 then
    -- The clock was set back: the debt moves with it, and is paid in the same time.
    full_us = full_us - step_us
  elseif step_us > 0 then
    -- A small step back is tolerated: the time of the last write counts.
    now_us = written_us
  end
  debt_us, debt_rest = full_us - now_us, full_rest
  if debt_us < 0 then debt_us, debt_rest = 0, 0 end
end
local after_us, after_rest = debt_us + price_us, debt_rest + price_rest
if after_rest >= 1000 then after_us, after_rest = after_us + 1, after_rest - 1000 end
if after_us > capacity_us or (after_us == capacity_us and after_rest > capacity_rest) then
  return {0, debt_us, debt_rest}
end
if after_us < 0 then after_us, after_rest = 0, 0 end
if after_us == 0 and after_rest == 0 then
  if value then call('DEL', KEYS[1]) end
elseif after_us ~= debt_us or after_rest ~= debt_rest then
  local lives_ms = math.ceil((after_us + 1) / 1000) + kept_ms
  call('SET', KEYS[1], encode('<ddd', now_us, now_us + after_us, after_rest), 'PX', lives_ms)
end
return {1, debt_us, debt_rest}
