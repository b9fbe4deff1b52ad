-- What a limit's rule is, for all who share it: the newest that anybody has published, and those before it.
-- KEYS[1]  a hash: `version`, `born` (when the limit began, in microseconds), `until` (when no state of its rules is left)
--          and the texts by version.
-- ARGV[1]  the caller's rule, or nothing to only ask. ARGV[2]: the version the caller has, or 0.
-- ARGV[4]  1 to have it replace another. Without, it is what the caller's version says, and what is there stays, unless
--          that is older: then the newer one was lost, with a primary whose replica was behind.
-- ARGV[5]  How long a state of the caller's rule lives at the longest, in milliseconds.
-- Says the version, when the limit began, and all versions with their texts.
local call = redis.call
local key, text, known = KEYS[1], ARGV[1], tonumber(ARGV[2])
local version, publishes = tonumber(call('HGET', key, 'version') or 0), ARGV[4] == '1'
if version == 0 and text ~= '' then
  -- A version is the microsecond it came in, so that none comes twice, even if all of this was lost; and so that who
  -- takes a state over knows since when the new rule holds. One less for the first: it may change at once.
  -- Where all of this was lost, it is what the caller goes by, or replaces that.
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
local said = {version, tonumber(call('HGET', key, 'born'))}
for i, number in ipairs(versions) do
  -- States of older rules than these are taken for used up.
  if i <= #versions - 64 then
    call('HDEL', key, number)
  else
    said[#said + 1] = number
    said[#said + 1] = call('HGET', key, number)
  end
end
-- Whoever uses the limit asks now and then: it stays as long as there is anybody, and then as long as there are states,
-- of rules before too. A day more, so that this is not written every time.
local until_us, needed_us = tonumber(call('HGET', key, 'until') or 0), now_us + ARGV[5] * 1000
if until_us < needed_us then
  until_us = needed_us + 86400000000
  call('HSET', key, 'until', until_us)
end
call('PEXPIRE', key, math.max(604800000, math.ceil((until_us - now_us) / 1000)) + kept_ms)
return said
