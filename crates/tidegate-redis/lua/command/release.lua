-- Releases a permit. KEYS[1]: as in `rows.lua`. ARGV[1]: the version, the ticket, and since when the permit is held.
-- Returns 1 if it was held; 0 if its lease had ended or it was released before; the value, if it belongs to another version
-- of the rule.
local call, encode, decode = redis.call, struct.pack, struct.unpack
local wanted, ticket, since_us = decode('<ddd', ARGV[1])
local key = KEYS[1]
local header = call('GETRANGE', key, 0, 71)
if header == '' then return 0 end
-- The version is read first: the value of another rule may be shorter.
if decode('<d', header) ~= wanted then return call('GET', key) end
local version, lives_us, _, head, tail, count, last_ticket, live, capacity = decode('<ddddddddd', header)
local function row(i)
  return decode('<ddddd', call('GETRANGE', key, 72 + i * 40, 111 + i * 40))
end
local function carried(i)
  return decode('<d', call('GETRANGE', key, 104 + i * 40, 111 + i * 40))
end
local index = first(head, tail, function(i) return row(i) >= ticket end)
if index == tail then return 0 end
local number, cost, since = row(index)
if number ~= ticket or since ~= since_us or cost == 0 then return 0 end
count = count - cost
if count == 0 then
  call('DEL', key)
  return 1
end
call('SETRANGE', key, 80 + index * 40, encode('<d', 0))
local i = index
while i < tail do
  call('SETRANGE', key, 104 + i * 40, encode('<d', carried(i) - cost))
  i = carrier(i)
end
-- Released permits at the end are dropped, so that the last row is held.
if index == tail - 1 then tail = reaches(sum_before(head, carried) + count, tail, carried) + 1 end
local _, _, _, last_us = row(tail - 1)
if last_us >= 0 and lives_us - last_us > 900000 then
  lives_us = math.max(last_us, now_us) + 900000
  call('PEXPIRE', key, math.ceil((lives_us - now_us) / 1000) + kept_ms)
end
write_rows(key, 5, version, lives_us, now_us, head, tail, count, last_ticket, live - 1, capacity)
return 1
