-- Grants a lease, and takes others back. Rust replaces TWIN by the name of the twin.
-- Invariant: a lease is charged before it is granted; unused leases are never more than `most`; a lease that has ended or was
-- returned cannot be returned again.
--
-- KEYS[1]  The key, as in the driver. KEYS[2]: the leases, each with its number and amount, sorted by when it ends.
-- ARGV[1]  The most that may be leased, the duration, whether leases end with their window (1), the number of the new lease,
--          how many leases are returned, and how many sizes are tried. ARGV[2], ARGV[3]: as in the driver.
-- ARGV[4…] For each returned lease: the lease, and the arguments that refund its unused part, or an empty string. Then for
--          each size, the largest first: the size, the arguments that charge it, and those that charge twice as much.
-- Returns how much was granted, for how long, and the last reply of the driver.
local call, encode, decode = redis.call, struct.pack, struct.unpack
local most, lasts_us, is_windowed, number, closed, sizes = decode('<dddddd', ARGV[1])
local key, leases, next_arg = KEYS[1], KEYS[2], 4
call('ZREMRANGEBYSCORE', leases, '-inf', now_us)
for _ = 1, closed do
  if call('ZREM', leases, ARGV[next_arg]) == 1 and ARGV[next_arg + 1] ~= '' then
    local is_back, reply = TWIN_at(now_us, kept_ms, key, ARGV[next_arg + 1], ARGV[2])
    if is_back == nil then return {0, 0, reply} end
  end
  next_arg = next_arg + 2
end
local held = call('ZRANGE', leases, 0, -1)
local lent = 0
for _, lease in ipairs(held) do
  -- Its second double.
  lent = lent + decode('<d', lease, 9)
end
local reply
for i = 1, sizes do
  local size, is_last = tonumber(ARGV[next_arg]), i == sizes
  -- The last size is needed now. A larger one is granted only if it leaves as much for others. The number of leases is
  -- bounded.
  local is_spare = lent + size <= most and #held < 256
  local is_one, reply_one
  if is_spare and not is_last then is_one, reply_one = TWIN_at(now_us, kept_ms, key, ARGV[next_arg + 2], ARGV[2], true) end
  if is_last or is_one then
    local drain_us
    is_one, reply_one, drain_us = TWIN_at(now_us, kept_ms, key, ARGV[next_arg + 1], ARGV[2], not is_spare)
    if is_one and is_spare then
      local ends_us = now_us + lasts_us
      if is_windowed == 1 then ends_us = math.min(ends_us, now_us + drain_us) end
      call('ZADD', leases, ends_us, encode('<dd', number, size))
      -- The list lives a second longer than this lease: no other lease lasts longer than a second from now.
      call('PEXPIRE', leases, math.ceil((ends_us - now_us) / 1000) + 1000 + kept_ms)
      return {size, ends_us - now_us, reply_one}
    end
  end
  if reply_one and is_one == nil then return {0, 0, reply_one} end
  reply = reply_one or reply
  next_arg = next_arg + 3
end
return {0, 0, reply or ''}
