-- Guava's SmoothBursty. Twin of tidegate-core/src/algorithm/smooth.rs; both obey spec/smooth.md.
-- State: the saved permits and when the next request may pass, each in whole microseconds and the remaining ticks, and
-- the time of the last request.
local function smooth(now_us, refunds, price_us, price_rest, most_us, most_rest, per_us, saved_us, saved_rest,
                      free_us, free_rest, seen_us)
  local function less(a_us, a_rest, b_us, b_rest)
    return a_us < b_us or (a_us == b_us and a_rest < b_rest)
  end
  local function plus(a_us, a_rest, b_us, b_rest)
    local us, rest = a_us + b_us, a_rest + b_rest
    if rest >= per_us then return us + 1, rest - per_us end
    return us, rest
  end
  local function minus(a_us, a_rest, b_us, b_rest)
    local us, rest = a_us - b_us, a_rest - b_rest
    if rest < 0 then us, rest = us - 1, rest + per_us end
    if us < 0 then return 0, 0 end
    return us, rest
  end
  local step_us = math.max(seen_us - now_us, 0)
  local owed_us, owed_rest = minus(free_us, free_rest, seen_us, 0)
  local tolerated_us, tolerated_rest = plus(owed_us, owed_rest, most_us, most_rest)
  if less(tolerated_us, tolerated_rest, step_us, 0) then
    -- The clock was set back further than is tolerated: the debt moves with it, and is paid in the same time.
    free_us, free_rest = minus(free_us, free_rest, step_us, 0)
    seen_us = now_us
  end
  local time_us = math.max(seen_us, now_us)
  if less(free_us, free_rest, time_us, 0) then
    saved_us, saved_rest = plus(saved_us, saved_rest, minus(time_us, 0, free_us, free_rest))
    if less(most_us, most_rest, saved_us, saved_rest) then saved_us, saved_rest = most_us, most_rest end
    free_us, free_rest = time_us, 0
  end
  owed_us, owed_rest = minus(free_us, free_rest, time_us, 0)
  if refunds == 1 then
    local back_us, back_rest = owed_us, owed_rest
    if less(price_us, price_rest, back_us, back_rest) then back_us, back_rest = price_us, price_rest end
    free_us, free_rest = minus(free_us, free_rest, back_us, back_rest)
    saved_us, saved_rest = plus(saved_us, saved_rest, minus(price_us, price_rest, back_us, back_rest))
    if less(most_us, most_rest, saved_us, saved_rest) then saved_us, saved_rest = most_us, most_rest end
  else
    local from_us, from_rest = saved_us, saved_rest
    if less(price_us, price_rest, from_us, from_rest) then from_us, from_rest = price_us, price_rest end
    saved_us, saved_rest = minus(saved_us, saved_rest, from_us, from_rest)
    free_us, free_rest = plus(free_us, free_rest, minus(price_us, price_rest, from_us, from_rest))
    -- More than a double can count exactly is never admitted.
    if free_us > 9007199254740991 then return false end
  end
  owed_us = minus(free_us, free_rest, time_us, 0)
  local unsaved_us = minus(most_us, most_rest, saved_us, saved_rest)
  return true, time_us - now_us + owed_us + unsaved_us + 2, nil, saved_us, saved_rest, free_us, free_rest, time_us
end
