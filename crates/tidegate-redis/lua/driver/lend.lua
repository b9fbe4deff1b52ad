-- Lends out of a limit ahead of use. TWIN stands for the twin's name.
-- Always: what is lent is charged first; what is lent and unused is never more than `most`; a lease that has run out, or
-- was given back, cannot be given back again.
--
-- KEYS[1]  the key, as the driver has it. KEYS[2]: who has a lease: its number and amount, by when it ends.
-- ARGV[1]  the most that may be lent, for how long, whether leases end with their window (1), the new lease's number,
--          how many leases are given back, and how many sizes are tried. ARGV[2], ARGV[3]: as the driver has them.
-- ARGV[4]  and so on, for each lease that is given back: itself, and what gives back its unused part, or nothing;
--          then for each size, the largest first: the size, what charges it, and what would charge twice as much.
-- Says how much was lent, for how long, and what the driver said last.
local call, encode, decode = redis.call, struct.pack, struct.unpack
local most, lasts_us, is_windowed, number, closed, sizes = decode('<dddddd', ARGV[1])
local key, leases, place = KEYS[1], KEYS[2], 4
call('ZREMRANGEBYSCORE', leases, '-inf', now_us)
for _ = 1, closed do
  if call('ZREM', leases, ARGV[place]) == 1 and ARGV[place + 1] ~= '' then
    local is_back, said = TWIN_at(now_us, kept_ms, key, ARGV[place + 1], ARGV[2])
    if is_back == nil then return {0, 0, said} end
  end
  place = place + 2
end
local held = call('ZRANGE', leases, 0, -1)
local lent = 0
for _, lease in ipairs(held) do
  -- Its second double.
  lent = lent + decode('<d', lease, 9)
end
local said
for i = 1, sizes do
  local size, is_last = tonumber(ARGV[place]), i == sizes
  -- The last is what is needed now. More than that is lent only if as much is left for others, and while those who
  -- have leases can be counted.
  local is_spare = lent + size <= most and #held < 256
  local is_one, told
  if is_spare and not is_last then is_one, told = TWIN_at(now_us, kept_ms, key, ARGV[place + 2], ARGV[2], true) end
  if is_last or is_one then
    local drain_us
    is_one, told, drain_us = TWIN_at(now_us, kept_ms, key, ARGV[place + 1], ARGV[2], not is_spare)
    if is_one and is_spare then
      local ends_us = now_us + lasts_us
      if is_windowed == 1 then ends_us = math.min(ends_us, now_us + drain_us) end
      call('ZADD', leases, ends_us, encode('<dd', number, size))
      -- A second more than this one: no other lasts longer than that from now.
      call('PEXPIRE', leases, math.ceil((ends_us - now_us) / 1000) + 1000 + kept_ms)
      return {size, ends_us - now_us, told}
    end
  end
  if told and is_one == nil then return {0, 0, told} end
  said = told or said
  place = place + 3
end
return {0, 0, said or ''}
