-- Sliding window by two counters. Twin of tidegate-core/src/algorithm/sliding.rs; both obey spec/sliding.md.
-- State: the start of the current window, the count of the one before, and its own count.

-- Returns whether a * b <= c * d, exactly, for whole numbers below 2^52: in halves of 26 bits if a double is too short.
local function is_product_within(a, b, c, d)
  local left, right = a * b, c * d
  if left < 9007199254740992 and right < 9007199254740992 then return left <= right end
  local function product(x, y)
    local x_high, y_high = math.floor(x / 67108864), math.floor(y / 67108864)
    local x_low, y_low = x - x_high * 67108864, y - y_high * 67108864
    local low = x_low * y_low
    local middle = x_high * y_low + x_low * y_high + math.floor(low / 67108864)
    return x_high * y_high + math.floor(middle / 67108864), middle % 67108864, low % 67108864
  end
  local left_high, left_middle, left_low = product(a, b)
  local right_high, right_middle, right_low = product(c, d)
  if left_high ~= right_high then return left_high < right_high end
  if left_middle ~= right_middle then return left_middle < right_middle end
  return left_low <= right_low
end

local function sliding(now_us, refunds, cost, count, period_us, counted_us, previous, current)
  local time_us = tolerant_time(counted_us, now_us, period_us)
  local start_us = time_us - time_us % period_us
  local is_repaired = counted_us > start_us
  if counted_us < start_us then
    previous, current = start_us - counted_us == period_us and current or 0, 0
  end
  -- Larger than the period if the window has not begun: a small step back of the clock.
  local left_us = period_us - (now_us - start_us)
  local function drain_us()
    if current > 0 then return left_us + period_us end
    return previous > 0 and left_us or 0
  end
  if refunds == 1 then
    local from_current = math.min(cost, current)
    current = current - from_current
    previous = math.max(previous - (cost - from_current), 0)
    return true, drain_us(), nil, start_us, previous, current
  end
  local free = count - current - cost
  if cost > 0 and free >= 0 and is_product_within(previous, left_us, free, period_us) then
    current = current + cost
    return true, drain_us(), nil, start_us, previous, current
  end
  return cost == 0, is_repaired and drain_us() or nil, nil, start_us, previous, current
end
