-- The driver of twins whose state is a list: rows in a string, read and written in place. A row takes only its doubles, and
-- a decision reads about the same number of rows, however long the list is.
-- A template with the arguments of `cell.lua`. WIDTH is the number of doubles of a row, and ROW_FORMAT their format.
--
-- key    Its value: the version of the rule, when the key expires, when it was written, the range of live rows (from head to
--        before tail), a sum and the last ticket, which belong to the twin, the number of live rows (all in the range,
--        unless the twin returns another number), the capacity in rows, and the rows.
-- Returns whether the request is charged, and then the time (for a denial: -1 minus the time) and what the twin returns.
local function TWIN_at(now_us, kept_ms, key, args, _, is_dry)
  local call, encode, decode = redis.call, struct.pack, struct.unpack
  local wanted, verb, _, ARGS = decode('<dddARGS_FORMAT', args)
  local header = call('GETRANGE', key, 0, 71)
  local version, lives_us, _, head, tail, sum, ticket, live, capacity = wanted, 0, 0, 0, 0, 0, 0, 0, 0
  if header ~= '' then
    -- The version is read first: the value of another rule may be shorter.
    version = decode('<d', header)
    if version ~= wanted then return nil, call('GET', key) end
    version, lives_us, _, head, tail, sum, ticket, live, capacity = decode('<ddddddddd', header)
  end
  local seen = {}
  local function row(i)
    local bytes = seen[i]
    if not bytes then
      bytes = call('GETRANGE', key, 72 + i * WIDTH * 8, 71 + (i + 1) * WIDTH * 8)
      seen[i] = bytes
    end
    return decode('<ROW_FORMAT', bytes)
  end
  local is_charged, drain_us, reply, head2, tail2, sum2, ticket2, live2, changes =
    TWIN(now_us, verb, ARGS, head, tail, sum, ticket, live, row)
  if drain_us and verb ~= 2 and not is_dry then
    local spare_us = lives_us - now_us - drain_us
    local is_renewed = spare_us < 0 or spare_us > 900000
    if is_renewed then lives_us = now_us + drain_us + 900000 end
    for _, change in pairs(changes or {}) do
      local offset = 72 + change[1] * WIDTH * 8
      call('SETRANGE', key, offset, encode('<ROW_FORMAT', unpack(change, 2)))
    end
    live2, capacity = live2 or tail2 - head2, math.max(capacity, tail2)
    write_rows(key, WIDTH, wanted, lives_us, now_us, head2, tail2, sum2, ticket2, live2, capacity)
    if is_renewed then call('PEXPIRE', key, math.ceil((lives_us - now_us) / 1000) + kept_ms) end
  end
  table.insert(reply, 1, is_charged and now_us or -1 - now_us)
  return is_charged, reply
end
