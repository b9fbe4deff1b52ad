-- Returns the first of `from` .. `to` - 1 for which `is_true` holds, or `to`. If it holds for one, it holds for all after it.
-- Searches in growing steps from the front, because the result is mostly near it.
local function first(from, to, is_true)
  local step = 1
  while from < to do
    local probe = math.min(from + step, to) - 1
    if is_true(probe) then
      to = probe
      break
    end
    from, step = probe + 1, step * 2
  end
  while from < to do
    local middle = math.floor((from + to) / 2)
    if is_true(middle) then to = middle else from = middle + 1 end
  end
  return from
end
