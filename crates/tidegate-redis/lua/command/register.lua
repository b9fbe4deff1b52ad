-- What a limit's rule is, for all who share it: the newest that anybody has published, and those before it.
-- KEYS[1]  a hash: `version`, `born` (when the limit began, in microseconds), and the texts by version.
-- ARGV[1]  the caller's rule, or nothing to only ask. ARGV[2]: the version the caller has, or 0.
-- ARGV[4]  1 to have it replace another. Without, what is there stays.
-- Says the version, when the limit began, and all versions with their texts.
local call = redis.call
local key, text, known = KEYS[1], ARGV[1], tonumber(ARGV[2])
local version = tonumber(call('HGET', key, 'version') or 0)
if version == 0 and text ~= '' then
  -- A version is the microsecond it came in, so that none comes twice, even if all of this was lost; and so that who
  -- takes a state over knows since when the new rule holds. One less for the first: it may change at once.
  version = known > 0 and known or math.max(now_us - 1, 1)
  call('HSET', key, 'version', version, 'born', now_us, version, text)
elseif text ~= '' and ARGV[4] == '1' and call('HGET', key, version) ~= text then
  version = math.max(version + 1, now_us)
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
  if i <= #versions - 8 then
    call('HDEL', key, number)
  else
    said[#said + 1] = number
    said[#said + 1] = call('HGET', key, number)
  end
end
-- Whoever uses the limit asks now and then: it stays as long as there is anybody.
call('PEXPIRE', key, 604800000 + kept_ms)
return said
