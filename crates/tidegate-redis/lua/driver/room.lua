-- Where rows lie: in a string, after nine doubles. What is written there, and whose room is given back.
-- Always: rows that are not held, wherever they lie, are no more than those that are held, or a few. Those that go pay
-- for the copy: between two copies more have gone than the second takes along.
local function put(key, width, version, lives_us, now_us, head, tail, sum, ticket, live, room)
  local call, encode = redis.call, struct.pack
  local format = '<ddddddddd'
  if room <= 32 or room <= live * 2 then
    call('SETRANGE', key, 0, encode(format, version, lives_us, now_us, head, tail, sum, ticket, live, room))
    return
  end
  local rows = call('GETRANGE', key, 72 + head * width * 8, 71 + tail * width * 8)
  if live < tail - head then
    -- A row that was given back has a cost of 0, its second double.
    local held = {}
    for at = 1, #rows, width * 8 do
      if struct.unpack('<d', rows, at + 8) > 0 then held[#held + 1] = rows:sub(at, at + width * 8 - 1) end
    end
    rows = table.concat(held)
  end
  local header = encode(format, version, lives_us, now_us, 0, live, sum, ticket, live, live)
  call('SET', key, header .. rows, 'KEEPTTL')
end
