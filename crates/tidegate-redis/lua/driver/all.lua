-- Decides several requests: all are charged, or none. Rust replaces TWINS by a table of the drivers by name.
-- KEYS[i] and ARGV[3 * i + 1 .. 3]  The name of the twin, and the arguments of its driver. ARGV[3]: the time, in tests only.
-- Returns whether all are charged, and then the reply of each driver.
local twins = {TWINS}
local reply, is_charged = {1}, true
for i, key in ipairs(KEYS) do
  local is_one, reply_one = twins[ARGV[3 * i + 1]](now_us, kept_ms, key, ARGV[3 * i + 2], ARGV[3 * i + 3], true)
  is_charged = is_charged and is_one
  reply[i + 1] = reply_one
end
if not is_charged then
  reply[1] = 0
  return reply
end
for i, key in ipairs(KEYS) do
  twins[ARGV[3 * i + 1]](now_us, kept_ms, key, ARGV[3 * i + 2], ARGV[3 * i + 3], false)
end
return reply
