-- Token bucket. Twin of tidegate-core/src/algorithm/token_bucket.rs; both obey spec/token_bucket.md.
-- State: when the bucket will be full again, in whole microseconds and the remaining ticks.
-- Returns the debt before, from which Rust computes the rest of the decision.
local function token_bucket(now_us, refunds, price_us, price_rest, capacity_us, capacity_rest, most_us, most_rest,
                            per_us, full_us, full_rest)
  local debt_us, debt_rest, is_repaired = full_us - now_us, full_rest, false
  if debt_us < 0 then
    debt_us, debt_rest = 0, 0
  elseif debt_us > most_us or (debt_us == most_us and debt_rest > most_rest) then
    -- More than the largest debt: the clock was set back. Keeping it would deny requests for as long as the step.
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
  if costs and (after_us < capacity_us or (after_us == capacity_us and after_rest <= capacity_rest)) then
    return true, after_us + 1, reply, now_us + after_us, after_rest
  end
  return not costs, is_repaired and debt_us + 1 or nil, reply, now_us + debt_us, debt_rest
end
