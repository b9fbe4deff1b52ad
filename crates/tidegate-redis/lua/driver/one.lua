-- One request. TWIN stands for the twin's name.
-- KEYS[1], ARGV[1], ARGV[2]  as the driver says. ARGV[3]: the time, in tests only.
-- KEYS[2], ARGV[4]           where the answer is kept, for so many milliseconds, so that who asks twice is charged once; for
--                            none, if this is only a look. Then what is said comes after the version of the rule that it was
--                            said by, which may have been another one; and a 1 after it, if it was said before.
local once = KEYS[2]
if once then
  local past = redis.call('GET', once)
  if past then
    local version, said = unpack(cmsgpack.unpack(past))
    return {version, said, 1}
  end
end
local is_charged, said = TWIN_at(now_us, kept_ms, KEYS[1], ARGV[1], ARGV[2])
if not once then return said end
local version = struct.unpack('<d', ARGV[1])
said = {version, said}
if is_charged and ARGV[4] ~= '0' then redis.call('SET', once, cmsgpack.pack(said), 'PX', ARGV[4]) end
return said
