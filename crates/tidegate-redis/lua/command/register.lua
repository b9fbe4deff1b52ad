-- Reads or publishes the rule of a limit: the newest version, and those before it.
-- KEYS[1]  A hash: `version`, `born` (when the limit was created, in microseconds), `until` (when the last state of its
--          rules expires) and the texts by version.
-- ARGV[1]  The caller's rule, or an empty string to only read. ARGV[2]: the version that the caller has, or 0.
-- ARGV[4]  1 to publish the rule. Otherwise the rule is that of the caller's version, and is only written if the hash has
--          an older one: then a failover to a lagging replica has lost it.
-- ARGV[5]  The longest time to live of a state of the caller's rule, in milliseconds.
-- Returns the version, when the limit was created, and all versions with their texts.
local call = redis.call
local key, text, known = KEYS[1], ARGV[1], tonumber(ARGV[2])
local version, publishes = tonumber(call('HGET', key, 'version') or 0), ARGV[4] == '1'
if version == 0 and text ~= '' then
  -- A version is the microsecond of its publication: so it is unique even if the hash was lost, and a caller that converts
  -- a state knows since when the new rule applies. The first is one less, so that it can be changed at once.
  -- If the hash was lost, it is restored to the caller's version, or to a newer one.
  version = known == 0 and math.max(now_us - 1, 1) or publishes and math.max(known + 1, now_us) or known
  call('HSET', key, 'version', version, 'born', now_us, version, text)
elseif text ~= '' and not publishes and known > version then
  version = known
  call('HSET', key, 'version', version, version, text)
elseif text ~= '' and publishes and (known > version or call('HGET', key, version) ~= text) then
  version = math.max(version + 1, known + 1, now_us)
  call('HSET', key, 'version', version, version, text)
end
if version == 0 then return {} end
local all, versions = call('HGETALL', key), {}
for i = 1, #all, 2 do
  local number = tonumber(all[i])
  if number then versions[#versions + 1] = number end
end
table.sort(versions)
local reply = {version, tonumber(call('HGET', key, 'born'))}
for i, number in ipairs(versions) do
  -- States of older versions count as exhausted.
  if i <= #versions - 64 then
    call('HDEL', key, number)
  else
    reply[#reply + 1] = number
    reply[#reply + 1] = call('HGET', key, number)
  end
end
-- Nodes read the rule regularly, which keeps the hash alive. After the last node it lives as long as states of any version.
-- A day is added, so that `until` need not be written every time.
local until_us, needed_us = tonumber(call('HGET', key, 'until') or 0), now_us + ARGV[5] * 1000
if until_us < needed_us then
  until_us = needed_us + 86400000000
  call('HSET', key, 'until', until_us)
end
call('PEXPIRE', key, math.max(604800000, math.ceil((until_us - now_us) / 1000)) + kept_ms)
return reply
