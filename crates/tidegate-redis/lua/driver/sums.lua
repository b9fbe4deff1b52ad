-- A Fenwick tree: sums over rows that are appended at the end and removed anywhere. Each row has a partial sum, of its cost and
-- the costs of some rows before it. The sum of all rows up to one, and the row at which a sum is reached, are computed from a
-- few partial sums. `carried(i)` is the partial sum of row i. Rows are counted from 0.

-- Returns the total cost of the rows before `i`.
local function sum_before(i, carried)
  local sum = 0
  while i > 0 do
    sum = sum + carried(i - 1)
    i = i - bit.band(i, -i)
  end
  return sum
end

-- Returns the partial sum of row `i`, given its cost.
local function carries(i, cost, carried)
  local from = i + 1 - bit.band(i + 1, -i - 1)
  while i > from do
    cost = cost + carried(i - 1)
    i = i - bit.band(i, -i)
  end
  return cost
end

-- Returns the next row whose partial sum includes row `i`.
local function carrier(i)
  return i + bit.band(i + 1, -i - 1)
end

-- Returns the first row before `tail` up to which the total cost is at least `sum`.
local function reaches(sum, tail, carried)
  local index, step = 0, 1
  while step * 2 <= tail do step = step * 2 end
  while step >= 1 do
    if index + step <= tail then
      local part = carried(index + step - 1)
      if part < sum then index, sum = index + step, sum - part end
    end
    step = step / 2
  end
  return index
end
