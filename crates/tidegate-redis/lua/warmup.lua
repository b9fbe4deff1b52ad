-- Guava's SmoothWarmingUp. Twin of tidegate-core/src/algorithm/warmup.rs; both obey spec/warmup.md.
-- State: the saved permits, when the next request may pass, the fraction of a microsecond that this omits, and the time
-- of the last request. Doubles are added and multiplied in the same order as in Rust, with the same result to the last bit.
local function warmup(now_us, refunds, cost, interval, threshold, saved_max, slope, cool_down, cooling_us, saved,
                      free_us, carry, seen_us)
  local step_us = math.max(seen_us - now_us, 0)
  if step_us > math.max(free_us - seen_us, 0) + cooling_us then
    -- The clock was set back further than is tolerated: the debt moves with it, and is paid in the same time.
    free_us, seen_us = math.max(free_us - step_us, 0), now_us
  end
  local time_us = math.max(seen_us, now_us)
  local function drain_us(saved, free_us)
    return math.max(free_us, time_us) - now_us + math.ceil((saved_max - saved) * cool_down) + 1
  end
  if cost == 0 and refunds ~= 1 then
    -- Resting in two steps rounds differently from resting in one, so a peek must not update the state.
    return true, drain_us(saved, free_us), nil, saved, free_us, carry, time_us
  end
  if time_us > free_us then
    local rested = (time_us - free_us) - carry / 4294967296
    saved = math.min(saved_max, saved + rested / cool_down)
    free_us, carry = time_us, 0
  end
  if refunds == 1 then
    free_us = math.max(free_us - math.floor(interval * cost), time_us)
  else
    local from_saved = math.min(cost, saved)
    local above, price = saved - threshold, nil
    if above <= 0 then
      price = interval * from_saved
    else
      local on_ramp = math.min(above, from_saved)
      local ramp = on_ramp * ((interval + above * slope) + (interval + (above - on_ramp) * slope)) / 2
      price = ramp + interval * (from_saved - on_ramp)
    end
    price = price + interval * (cost - from_saved) + carry / 4294967296
    local whole_us = math.floor(price)
    saved = saved - from_saved
    free_us = free_us + whole_us
    carry = math.floor((price - whole_us) * 4294967296)
    -- More than a double can count exactly is never admitted.
    if free_us > 9007199254740991 then return false end
  end
  return true, drain_us(saved, free_us), nil, saved, free_us, carry, time_us
end
