-- Decides one request. Rust replaces TWIN by the name of the twin.
-- KEYS[1], ARGV[1], ARGV[2]  As in the driver. ARGV[3]: the time, in tests only.
-- KEYS[2], ARGV[4]           For an idempotent request: the key that stores the reply, and for how many milliseconds (0 for a
--                            peek). Then the script returns the version of the rule, the reply, and a 1 if the reply was
--                            stored before, perhaps under another version.
local stored_at = KEYS[2]
if stored_at then
  local stored = redis.call('GET', stored_at)
  if stored then
    local version, reply = unpack(cmsgpack.unpack(stored))
    return {version, reply, 1}
  end
end
local is_charged, reply = TWIN_at(now_us, kept_ms, KEYS[1], ARGV[1], ARGV[2])
if not stored_at then return reply end
local version = struct.unpack('<d', ARGV[1])
reply = {version, reply}
if is_charged and ARGV[4] ~= '0' then redis.call('SET', stored_at, cmsgpack.pack(reply), 'PX', ARGV[4]) end
return reply
