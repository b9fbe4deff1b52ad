-- Sliding window log. Twin of tidegate-core/src/algorithm/sliding_log.rs; both obey spec/sliding_log.md.
-- Rows, oldest first: the time, and the sum of all costs up to then. The count in the window is a difference of two
-- sums, and expired rows are found by binary search. `before` is the sum before the first row.
-- Returns the count, the time of the last row, the count that must expire before the request can be admitted, and the time
-- of the row with which it has expired.
local function sliding_log(now_us, refunds, cost, count, period_us, skew_us, head, tail, before, _, _, row)
  local last_us, last_sum = 0, before
  if tail > head then last_us, last_sum = row(tail - 1) end
  local is_repaired = last_us - now_us > skew_us
  if is_repaired then
    -- The clock was set back: rows after now are merged into one row of now.
    tail = first(head, tail, function(i) return row(i) > now_us end) + 1
    last_us = now_us
  end
  local function at(i)
    if i == tail - 1 then return last_us, last_sum end
    return row(i)
  end
  local live = first(head, tail, function(i) return at(i) > now_us - period_us end)
  if live > head then
    local _, sum = at(live - 1)
    before = sum
  end
  local total = last_sum - before
  if refunds == 1 then
    local sum = math.max(last_sum - cost, before)
    if sum == before then return true, 0, {}, tail, tail, 0, 0 end
    local last = first(live, tail, function(i) local _, s = at(i); return s >= sum end)
    last_us = at(last)
    return true, last_us - now_us + period_us, {}, live, last + 1, before, 0, nil, {{last, last_us, sum}}
  end
  if cost > 0 and cost <= count - total then
    local reply = {total, total > 0 and last_us or 0, 0, 0}
    local latest_us = math.max(last_us, now_us)
    if live == tail or last_us ~= latest_us then tail = tail + 1 end
    local added = {tail - 1, latest_us, last_sum + cost}
    return true, latest_us - now_us + period_us, reply, live, tail, before, 0, nil, {added}
  end
  local missing, missing_us = 0, 0
  if cost > 0 and cost <= count then
    missing = math.min(total + cost - count, total)
    missing_us = at(first(live, tail, function(i) local _, s = at(i); return s - before >= missing end))
  end
  local reply = {total, total > 0 and last_us or 0, missing, missing_us}
  if not is_repaired then return cost == 0, nil, reply end
  return cost == 0, period_us, reply, live, tail, before, 0, nil, {{tail - 1, last_us, last_sum}}
end
