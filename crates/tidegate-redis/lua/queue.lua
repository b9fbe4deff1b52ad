-- Leaky bucket as a queue. Twin of tidegate-core/src/algorithm/queue.rs; both obey spec/queue.md.
-- State: when the next request may pass, in whole microseconds and the remaining ticks.
local function queue(now_us, refunds, price_us, price_rest, capacity_us, capacity_rest, wait_us, wait_rest, most_us,
                     most_rest, per_us, free_us, free_rest)
  local debt_us, debt_rest, is_repaired = free_us - now_us, free_rest, false
  if debt_us < 0 then
    debt_us, debt_rest = 0, 0
  elseif debt_us > most_us or (debt_us == most_us and debt_rest > most_rest) then
    -- Longer than the queue can be: the clock was set back.
    debt_us, debt_rest, is_repaired = capacity_us, capacity_rest, true
  end
  local reply = debt_rest == 0 and debt_us or nil
  if refunds == 1 then
    local after_us, after_rest = debt_us - price_us, debt_rest - price_rest
    if after_rest < 0 then after_us, after_rest = after_us - 1, after_rest + per_us end
    if after_us < 0 then after_us, after_rest = 0, 0 end
    return true, after_us + after_rest / per_us, reply, now_us + after_us, after_rest
  end
  local after_us, after_rest = debt_us + price_us, debt_rest + price_rest
  if after_rest >= per_us then after_us, after_rest = after_us + 1, after_rest - per_us end
  local costs = price_us > 0 or price_rest > 0
  local has_room = after_us < capacity_us or (after_us == capacity_us and after_rest <= capacity_rest)
  local is_short_enough = debt_us < wait_us or (debt_us == wait_us and debt_rest <= wait_rest)
  if costs and has_room and is_short_enough then
    return true, after_us + 1, reply, now_us + after_us, after_rest
  end
  return not costs, is_repaired and debt_us + 1 or nil, reply, now_us + debt_us, debt_rest
end
