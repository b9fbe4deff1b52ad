-- Fixed window. Twin of tidegate-core/src/algorithm/fixed.rs; both obey spec/fixed.md.
-- State: the window's start and the count in it. With an offset below zero, windows start with a request.
local function fixed(now_us, refunds, cost, count, period_us, offset_us, counted_us, used)
  local start_us, end_us
  if offset_us < 0 then
    local is_open = used > 0 and counted_us <= now_us and now_us - counted_us < period_us
    start_us = is_open and counted_us or now_us
    end_us = start_us + period_us
  else
    local time_us = tolerant_time(counted_us, now_us, period_us)
    local into_us = (time_us % period_us + period_us - offset_us) % period_us
    start_us, end_us = math.max(time_us - into_us, 0), time_us + period_us - into_us
  end
  return window(now_us, refunds, cost, count, start_us, end_us, counted_us, used)
end
