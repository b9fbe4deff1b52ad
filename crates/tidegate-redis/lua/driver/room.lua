-- Where rows lie: in a string, after nine doubles. What is written there, and whose room is given back.
-- Always: rows that are not held, wherever they lie, are no more than those that are held, or a few. Those that go pay
-- for the copy: between two copies at least half as many have gone as the second takes along. `live` may be less than are
-- held, by those that were given back and have run out since; below zero, the rows are copied whatever room they take.
local function put(key, width, version, lives_us, now_us, head, tail, sum, ticket, live, room)
  local call, encode = redis.call, struct.pack
  local format = '<ddddddddd'
  if live >= 0 and (room <= 32 or room <= live * 2) then
    call('SETRANGE', key, 0, encode(format, version, lives_us, now_us, head, tail, sum, ticket, live, room))
    return
  end
  local rows = call('GETRANGE', key, 72 + head * width * 8, 71 + tail * width * 8)
  if width == 5 then
    -- A row that was given back has a cost of 0, its second double. The others have other rows before them now, and so
    -- carry other sums, their last.
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
