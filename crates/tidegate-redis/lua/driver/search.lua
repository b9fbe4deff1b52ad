-- The first of `from` .. `to` - 1 for which it is true, or `to`: what is true of one is true of all after it.
-- In growing steps from the front, because what is looked for is mostly near it.
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
