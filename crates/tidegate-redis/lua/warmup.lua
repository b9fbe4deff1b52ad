-- Guava's SmoothWarmingUp. Twin of tidegate-core/src/algorithm/warmup.rs; both obey spec/warmup.md.
-- State: what is saved, when the next caller may pass, the part of a microsecond that leaves out, and when we last
-- looked. Doubles, added and multiplied in the same order as there: the same numbers to the last bit.
local function warmup(now_us, gives_back, cost, interval, threshold, saved_max, slope, cool_down, cooling_us, saved,
                      free_us, carry, seen_us)
  local step_us = math.max(seen_us - now_us, 0)
  if step_us > math.max(free_us - seen_us, 0) + cooling_us then
    -- Too long to be ridden out: what is owed goes along, and is paid in the same time.
    free_us, seen_us = math.max(free_us - step_us, 0), now_us
  end
  local time_us = math.max(seen_us, now_us)
  local function drain_us(saved, free_us)
    return math.max(free_us, time_us) - now_us + math.ceil((saved_max - saved) * cool_down) + 1
  end
  if cost == 0 and gives_back ~= 1 then
    -- To rest in two steps saves as much but for the rounding, so who only looks does not.
    return true, drain_us(saved, free_us), nil, saved, free_us, carry, time_us
  end
  if time_us > free_us then
    local rested = (time_us - free_us) - carry / 4294967296
    saved = math.min(saved_max, saved + rested / cool_down)
    free_us, carry = time_us, 0
  end
  if gives_back == 1 then
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
    -- Beyond what can be counted: as good as never.
    if free_us > 9007199254740991 then return false end
  end
  return true, drain_us(saved, free_us), nil, saved, free_us, carry, time_us
end
