-- Sums over rows that come at the end and go anywhere: a Fenwick tree. Each row carries what it and some of those before it
-- cost together; so what all rows up to one cost, and which row a sum is reached with, is read from a few of them.
-- `carried(i)` is what row i carries. Rows are counted from 0.

-- What the rows before `i` cost together.
local function sum_before(i, carried)
  local sum = 0
  while i > 0 do
    sum = sum + carried(i - 1)
    i = i - bit.band(i, -i)
  end
  return sum
end

-- What row `i` carries, if it costs so much.
local function carries(i, cost, carried)
  local from = i + 1 - bit.band(i + 1, -i - 1)
  while i > from do
    cost = cost + carried(i - 1)
    i = i - bit.band(i, -i)
  end
  return cost
end

-- The next row that carries what row `i` costs.
local function carrier(i)
  return i + bit.band(i + 1, -i - 1)
end

-- The first of the rows before `tail` with which they cost so much together.
local function reaches(sum, tail, carried)
  local place, step = 0, 1
  while step * 2 <= tail do step = step * 2 end
  while step >= 1 do
    if place + step <= tail then
      local part = carried(place + step - 1)
      if part < sum then place, sum = place + step, sum - part end
    end
    step = step / 2
  end
  return place
end
