-- Writes the header of a key whose rows follow nine doubles, and compacts the string if it has too many dead rows.
-- Invariant  A key has at most as many dead rows as live ones, or 32.
-- Cost       A compaction copies the live rows. Since the one before, at least half as many rows have died, so each row that
--            dies pays for two copies at most.
-- `live` may be too small: the lease of a released permit may have ended since. Below zero, the rows are always compacted.
local function write_rows(key, width, version, lives_us, now_us, head, tail, sum, ticket, live, capacity)
  local call, encode = redis.call, struct.pack
  local format = '<ddddddddd'
  if live >= 0 and (capacity <= 32 or capacity <= live * 2) then
    call('SETRANGE', key, 0, encode(format, version, lives_us, now_us, head, tail, sum, ticket, live, capacity))
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
        local index = #held
        sums[index + 1] = carries(index, cost, carried)
        held[index + 1] = rows:sub(at, at + 31) .. encode('<d', sums[index + 1])
      end
    end
    rows, live = table.concat(held), #held
  end
  local header = encode(format, version, lives_us, now_us, 0, live, sum, ticket, live, live)
  call('SET', key, header .. rows, 'KEEPTTL')
end
