-- The driver of twins whose state is a few numbers: reads them, asks the twin, writes what it says.
-- A template: TWIN stands for the twin's name, ARGS and STATE for as many names as it has numbers of a rule and of a
-- state, AFTER for the new state, ARGS_FORMAT and STATE_FORMAT for how they are packed.
--
-- key    Its value: the version of the rule, until when it lives, the state, and when it was written; doubles, as they
--        lie in memory. Whatever is not needed is not unpacked: that is what costs.
-- args   The version, whether it charges (0), gives back (1) or only looks (2), from when on a key that nobody has
--        asked about is as good as new, and the twin's numbers.
-- fresh  The state of a key that nobody has asked about.
-- looks  Whether nothing may be written.
-- Says whether it is charged, then what Rust is told, and last how long until it is as good as new. Rust is told
--   what is owed, where the twin knows it, or less than zero for no: -1 less what is owed;
--   else the time (for no: -1 less the time) and the value as it was;
--   the time alone, if the twin needs other numbers for it;
--   the value alone, if it belongs to another version of the rule.
local function TWIN_at(now_us, kept_ms, key, args, fresh, looks)
  -- No names from outside: each would be made anew for every call.
  local call, encode, decode = redis.call, struct.pack, struct.unpack
  local wanted, verb, rests_us, ARGS = decode('<dddARGS_FORMAT', args)
  local value = call('GET', key)
  local version, lives_us, STATE = wanted, 0
  if value then
    -- The version first: what another rule has written may be shorter.
    version = decode('<d', value)
    if version ~= wanted then return nil, value end
    version, lives_us, STATE = decode('<ddSTATE_FORMAT', value)
  else
    STATE = decode('<STATE_FORMAT', fresh)
  end
  local is_charged, drain_us, said, AFTER = TWIN(now_us, verb, ARGS, STATE)
  if is_charged == nil then return nil, {now_us} end
  if drain_us and verb ~= 2 and not looks then
    -- What is forgotten starts over: not before that is no difference.
    if now_us + drain_us < rests_us then drain_us = rests_us - now_us end
    -- A key at rest is kept for a moment too: the clock may tremble, and must not open a window twice.
    local spare_us = lives_us - now_us - drain_us
    if spare_us >= 0 and spare_us <= 900000 then
      -- It lives long enough already: the state changes in its place, which is the cheapest write there is.
      call('SETRANGE', key, '16', encode('<STATE_FORMATd', AFTER, now_us))
    else
      lives_us = now_us + drain_us + 900000
      local lives_ms = math.ceil((drain_us + 900000) / 1000) + kept_ms
      call('SET', key, encode('<ddSTATE_FORMATd', wanted, lives_us, AFTER, now_us), 'PX', lives_ms)
    end
  end
  if said then
    if is_charged then return true, said, drain_us end
    return false, -1 - said
  end
  return is_charged, {is_charged and now_us or -1 - now_us, value or ''}, drain_us
end
