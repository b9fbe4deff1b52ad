-- Several requests: all are charged, or none. TWINS stands for the drivers by their twins' names.
-- KEYS[i] and ARGV[3 * i + 1 .. 3]  the twin's name, and what its driver takes. ARGV[3]: the time, in tests only.
-- Says whether all are charged, and then what each driver says.
local twins = {TWINS}
local said, is_charged = {1}, true
for i, key in ipairs(KEYS) do
  local is_one, told = twins[ARGV[3 * i + 1]](now_us, kept_ms, key, ARGV[3 * i + 2], ARGV[3 * i + 3], true)
  is_charged = is_charged and is_one
  said[i + 1] = told
end
if not is_charged then
  said[1] = 0
  return said
end
for i, key in ipairs(KEYS) do
  twins[ARGV[3 * i + 1]](now_us, kept_ms, key, ARGV[3 * i + 2], ARGV[3 * i + 3], false)
end
return said
