-- Concurrency. Twin of tidegate-core/src/algorithm/concurrency.rs; both obey spec/concurrency.md.
-- Rows, oldest first: ticket, cost (0 when it was given back), since when, and until when (below zero: no lease).
-- Said: how many are in flight, until when the last, and how many must go until when for the request to pass; then
-- the ticket, if one was given.

-- Who holds a place without a lease and dies holds it for ever; so long after the last request it is forgotten.
local ORPHANED_US = 86400000000

local function concurrency(now_us, gives_back, cost, max, lease_us, head, tail, count, ticket, live, row)
  if gives_back == 1 then return true, nil, {} end
  local changes
  local function hold(i)
    if changes and changes[i] then return unpack(changes[i], 2) end
    return row(i)
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
  if last >= head then
    local _
    _, _, _, last_us = row(last)
  end
  if lease_us >= 0 and last_us - now_us > lease_us + math.min(lease_us, 1000) then
    -- From before a step of the clock: every lease ends by now's.
    changes, last_us = {}, now_us + lease_us
    for i = last, head, -1 do
      local number, c, since_us, until_us = row(i)
      if until_us <= last_us then break end
      changes[i] = {i, number, c, since_us, last_us}
    end
  end
  while head <= last do
    local _, c, _, until_us = hold(head)
    if c > 0 and (lease_us < 0 or until_us < 0 or until_us > now_us) then break end
    if c > 0 then live = live - 1 end
    count, head = count - c, head + 1
  end
  if head > last then last_us = -1 end
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
    local said = {count, last_us, 0, 0, ticket + 1}
    local added = {last + 1, ticket + 1, cost, now_us, until_us}
    return true, drain_us(until_us), said, head, last + 2, count + cost, ticket + 1, live + 1, rows(added)
  end
  local missing, missing_us = 0, -1
  if cost > 0 and cost <= max then
    missing = math.min(count + cost - max, count)
    local gone, i = 0, head
    while gone < missing do
      local _, c, _, until_us = hold(i)
      gone, missing_us, i = gone + c, until_us, i + 1
    end
  end
  local said = {count, last_us, missing, missing_us}
  if not changes then return cost == 0, nil, said end
  return cost == 0, drain_us(last_us), said, head, last + 1, count, ticket, live, rows()
end
