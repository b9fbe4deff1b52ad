-- Concurrency. Twin of tidegate-core/src/algorithm/concurrency.rs; both obey spec/concurrency.md.
-- Rows, oldest first: the ticket of a permit, its cost (0 after the release), since when it is held, when its lease ends
-- (below zero: no lease), and a partial sum of costs (`sums.lua`). Leases end in the order of rows.
-- Returns the cost in flight, when the last lease ends, the cost that must end before the request can be admitted, and when
-- that cost has ended. If the request is admitted, its ticket follows.

-- A crashed client cannot release a permit without a lease: it is forgotten this long after the last request.
local ORPHANED_US = 86400000000
-- Whole numbers up to this are exact.
local EXACT_MAX = 9007199254740992

local function concurrency(now_us, refunds, cost, max, lease_us, head, tail, count, ticket, live, row)
  if refunds == 1 then return true, nil, {} end
  local changes
  local function until_us_of(i)
    if changes and changes[i] then return changes[i][5] end
    local _, _, _, until_us = row(i)
    return until_us
  end
  local function carried(i)
    local _, _, _, _, sum = row(i)
    return sum
  end
  local function drain_us(until_us)
    if until_us < 0 then return ORPHANED_US end
    return math.max(until_us - now_us, 1)
  end
  local last = tail - 1
  while last >= head do
    local _, c = row(last)
    if c > 0 then break end
    last = last - 1
  end
  local last_us = -1
  if last >= head then last_us = until_us_of(last) end
  if lease_us >= 0 and last_us - now_us > lease_us + math.min(lease_us, 1000) then
    -- The clock was set back: no lease ends later than one that begins now.
    changes, last_us = {}, now_us + lease_us
    for i = last, head, -1 do
      local number, c, since_us, until_us, sum = row(i)
      if until_us <= last_us then break end
      changes[i] = {i, number, c, since_us, last_us, sum}
    end
  end
  if lease_us >= 0 then
    local from = head
    head = first(from, last + 1, function(i)
      local until_us = until_us_of(i)
      return until_us < 0 or until_us > now_us
    end)
    if head > last then
      count, live, last_us = 0, 0, -1
    elseif head > from then
      count = count - (sum_before(head, carried) - sum_before(from, carried))
      live = math.max(live - (head - from), 0)
    end
  end
  local function rows(added)
    local list = {added}
    for i, change in pairs(changes or {}) do
      if i >= head then list[#list + 1] = change end
    end
    return list
  end
  if cost > 0 and cost <= max - count then
    local until_us = -1
    if lease_us >= 0 then until_us = math.max(now_us + lease_us, last_us) end
    local reply = {count, last_us, 0, 0, ticket + 1}
    local added = {last + 1, ticket + 1, cost, now_us, until_us, carries(last + 1, cost, carried)}
    -- Sums include ended leases: before a sum is no longer exact, their rows are dropped.
    local may_be_long = (last + 2) * max >= EXACT_MAX
    local is_long = may_be_long and head > 0 and sum_before(last + 1, carried) + cost >= EXACT_MAX
    live = is_long and -1 or live + 1
    return true, drain_us(until_us), reply, head, last + 2, count + cost, ticket + 1, live, rows(added)
  end
  local missing, missing_us = 0, -1
  if cost > 0 and cost <= max then
    missing = math.min(count + cost - max, count)
    missing_us = until_us_of(reaches(sum_before(head, carried) + missing, last + 1, carried))
  end
  local reply = {count, last_us, missing, missing_us}
  if not changes then return cost == 0, nil, reply end
  return cost == 0, drain_us(last_us), reply, head, last + 1, count, ticket, live, rows()
end
