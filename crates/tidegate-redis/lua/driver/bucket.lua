-- The driver for the most frequent operation: charging a bucket whose tick is a microsecond and that starts full. It does
-- what `cell.lua` does, with fewer numbers, since unpacking them is most of the cost of a decision.
--
-- Gain   Redis's CPU time per decision is 0.91 of that with `cell.lua`, for one key and for a million new keys, in pipelines
--        of 16. `cargo xtask bench --bench shared -- processor` compares it with GCRA (docs/benchmarks.md, Limits in Redis);
--        `cell.lua` is measured by letting `LimitCodec::whole_capacity` return `None`.
-- Held   `tests/differential.rs` compares both drivers with Rust, number by number.
--
-- KEYS[1] and the reply are as in `cell.lua`. ARGV[1]: the version, the price and the capacity, in whole microseconds.
-- ARGV[2]: the time to live, in milliseconds, of a key that owes only the price. ARGV[3]: the time, in tests only.
local call, encode, decode = redis.call, struct.pack, struct.unpack
local key = KEYS[1]
local wanted, price_us, capacity_us = decode('<ddd', ARGV[1])
local value = call('GET', key)
if not value and price_us > 0 and price_us <= capacity_us then
  -- A new key owes nothing, so the twin would admit the request. Most keys of a busy limit are new, and the caller has
  -- computed what is the same for all of them.
  local lives_ms = kept_ms == 0 and ARGV[2] or ARGV[2] + kept_ms
  local after_us = now_us + price_us
  call('SET', key, encode('<ddddd', wanted, after_us + 900001, after_us, 0, now_us), 'PX', lives_ms)
  return 0
end
local lives_us, full_us = 0, 0
if value then
  local version
  version, lives_us, full_us = decode('<ddd', value)
  if version ~= wanted then return value end
end
local most_us = capacity_us + (capacity_us < 1000 and capacity_us or 1000)
local is_charged, drain_us, reply, after_us =
  token_bucket(now_us, 0, price_us, 0, capacity_us, 0, most_us, 0, 1, full_us, 0)
if drain_us then
  local spare_us = lives_us - now_us - drain_us
  if spare_us >= 0 and spare_us <= 900000 then
    call('SETRANGE', key, '16', encode('<ddd', after_us, 0, now_us))
  else
    lives_us = now_us + drain_us + 900000
    local lives_ms = math.ceil((drain_us + 900000) / 1000) + kept_ms
    call('SET', key, encode('<ddddd', wanted, lives_us, after_us, 0, now_us), 'PX', lives_ms)
  end
end
if is_charged then return reply end
return -1 - reply
