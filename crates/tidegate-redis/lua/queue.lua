-- Leaky bucket as a queue. Twin of tidegate-core/src/algorithm/queue.rs; both obey spec/queue.md.
-- State: when the next request may pass, in whole microseconds and the remaining ticks.
local function queue(now_us, refunds, price_us, price_rest, room_us, room_rest, wait_us, wait_rest, most_us,
                     most_rest, per_us, free_us, free_rest)
  local log_us, log_rest, is_repaired = free_us - now_us, free_rest, false
  if log_us < 0 then
    log_us, log_rest = 0, 0
  elseif log_us > most_us or (log_us == most_us and log_rest > most_rest) then
    -- Longer than the queue can be: the clock was set back.
    log_us, log_rest, is_repaired = room_us, room_rest, true
  end
  local reply = log_rest == 0 and log_us or nil
  if refunds == 1 then
    local after_us, after_rest = log_us - price_us, log_rest - price_rest
    if after_rest < 0 then after_us, after_rest = after_us - 1, after_rest + per_us end
    if after_us < 0 then after_us, after_rest = 0, 0 end
    return true, after_us + after_rest / per_us, reply, now_us + after_us, after_rest
  end
  local after_us, after_rest = log_us + price_us, log_rest + price_rest
  if after_rest >= per_us then after_us, after_rest = after_us + 1, after_rest - per_us end
  local costs = price_us > 0 or price_rest > 0
  local has_room = after_us < room_us or (after_us == room_us and after_rest <= room_rest)
  local is_bearable = log_us < wait_us or (log_us == wait_us and log_rest <= wait_rest)
  if costs and has_room and is_bearable then
    return true, after_us + 1, reply, now_us + after_us, after_rest
  end
  return not costs, is_repaired and log_us + 1 or nil, reply, now_us + log_us, log_rest
end
