-- Writes the rows of a key, which are in a string after nine doubles, and compacts the string.
-- Invariant: there are at most as many dead rows as live ones, or 32. Compacting is paid for by the rows that died: between
-- two copies at least half as many rows died as the second one copies. `live` may be too small, by released permits whose lease
-- has ended since; below zero, the rows are compacted in any case.
local function put(key, width, version, lives_us, now_us, head, tail, sum, ticket, live, room)
  local call, encode = redis.call, struct.pack
  local format = '<ddddddddd'
  if live >= 0 and (room <= 32 or room <= live * 2) then
    call('SETRANGE', key, 0, encode(format, version, lives_us, now_us, head, tail, sum, ticket, live, room))
    return
  end
  local rows = call('GETRANGE', key, 72 + head * width * 8, 71 + tail * width * 8)
  if width == 5 then
    -- A released permit has a cost of 0, its second double. The other rows get a new position, and so a new partial sum,
    -- their last double.
    local held, sums = {}, {}
    local function carried(i) return sums[i + 1] end
    for at = 1, #rows, 40 do
      local cost = struct.unpack('<d', rows, at + 8)
      if cost > 0 then
        local place = #held
        sums[place + 1] = carries(place, cost, carried)
        held[place + 1] = rows:sub(at, at + 31) .. encode('<d', sums[place + 1])
      end
    end
    rows, live = table.concat(held), #held
  end
  local header = encode(format, version, lives_us, now_us, 0, live, sum, ticket, live, live)
  call('SET', key, header .. rows, 'KEEPTTL')
end
