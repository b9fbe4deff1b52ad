-- Counts within a window, for `fixed` and `calendar`, which determine the window.
-- Twin of tidegate-core/src/algorithm/window.rs.

-- Returns the time that counts: a step back of the clock of up to a millisecond is ignored.
local function tolerant_time(latest_us, now_us, period_us)
  local step_us = latest_us - now_us
  if step_us > 0 and step_us <= period_us and step_us <= 1000 then return latest_us end
  return now_us
end

local function window(now_us, refunds, cost, count, start_us, end_us, counted_us, used)
  -- The clock was set back: a count of a later window is kept, in the window of now.
  local is_repaired = counted_us > start_us
  if counted_us < start_us then used = 0 end
  local left_us = math.max(end_us - now_us, 1)
  if refunds == 1 then
    used = math.max(used - cost, 0)
    return true, used > 0 and left_us or 0, nil, start_us, used
  end
  if cost > 0 and cost <= count - used then return true, left_us, nil, start_us, used + cost end
  return cost == 0, is_repaired and left_us or nil, nil, start_us, used
end
