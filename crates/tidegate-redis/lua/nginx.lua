-- nginx's limit_req. Twin of tidegate-core/src/algorithm/nginx.rs; both obey spec/nginx.md.
-- State: the level in thousandths of a request, and the millisecond it is of.
local function nginx(now_us, refunds, price, rate, capacity, full_ms, skew_ms, level, last_ms)
  local now_ms = math.floor(now_us / 1000)
  local function drain_us(level, last_ms)
    if level == 0 then return 0 end
    return math.max((last_ms + math.ceil(level * 1000 / rate)) * 1000 - now_us, 1)
  end
  if refunds == 1 then
    level = math.max(level - price, 0)
    return true, drain_us(level, last_ms), nil, level, last_ms
  end
  local is_repaired = last_ms - now_ms > skew_ms
  if is_repaired then last_ms = now_ms end
  local elapsed_ms = math.max(now_ms - last_ms, 0)
  -- A larger product would not be exact, and after `full_ms` everything has leaked.
  local leaked = elapsed_ms >= full_ms and capacity or math.floor(rate * elapsed_ms / 1000)
  local after = math.max(level - leaked, 0) + price
  if price > 0 and after <= capacity then
    last_ms = math.max(last_ms, now_ms)
    return true, drain_us(after, last_ms), nil, after, last_ms
  end
  return price == 0, is_repaired and drain_us(level, last_ms) or nil, nil, level, last_ms
end
