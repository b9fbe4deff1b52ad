-- The driver of twins whose state is a fixed number of doubles: reads the state, calls the twin, writes the new state.
-- A template: Rust replaces TWIN by the name of the twin, ARGS and STATE by variables for the numbers of the rule and of the
-- state, AFTER by variables for the new state, and ARGS_FORMAT and STATE_FORMAT by their formats.
--
-- key    Its value, all doubles: the version of the rule, when the key expires, the state, and when it was written. Only what
--        is needed is unpacked, since unpacking is most of the cost.
-- args   The version; whether to charge (0), to refund (1) or to peek (2); the time from which on a new key is full; the
--        numbers of the rule.
-- fresh  The state of a new key.
-- is_dry Whether the driver must not write.
-- Returns whether the request is charged, the reply, and the time until the key equals a new one. The reply is
--   the debt, if the twin returns it (for a denial: -1 minus the debt);
--   else the time (for a denial: -1 minus the time) and the value as it was;
--   only the time, if the twin needs the windows of that time;
--   only the value, if it belongs to another version of the rule.
local function TWIN_at(now_us, kept_ms, key, args, fresh, is_dry)
  -- Local variables, since Lua would capture variables of the outer script again for every call.
  local call, encode, decode = redis.call, struct.pack, struct.unpack
  local wanted, verb, full_from_us, ARGS = decode('<dddARGS_FORMAT', args)
  local value = call('GET', key)
  local version, lives_us, STATE = wanted, 0
  if value then
    -- The version is read first: the value of another rule may be shorter.
    version = decode('<d', value)
    if version ~= wanted then return nil, value end
    version, lives_us, STATE = decode('<ddSTATE_FORMAT', value)
  else
    STATE = decode('<STATE_FORMAT', fresh)
  end
  local is_charged, drain_us, reply, AFTER = TWIN(now_us, verb, ARGS, STATE)
  if is_charged == nil then return nil, {now_us} end
  if drain_us and verb ~= 2 and not is_dry then
    -- After it expires, a key starts over as a new one, so it must live until a new key would be full too.
    if now_us + drain_us < full_from_us then drain_us = full_from_us - now_us end
    -- A key lives 0.9 s longer than its state counts: otherwise a small step back of the clock would open a window twice.
    local spare_us = lives_us - now_us - drain_us
    if spare_us >= 0 and spare_us <= 900000 then
      -- The key lives long enough, so only the state is written, which is the cheapest write.
      call('SETRANGE', key, '16', encode('<STATE_FORMATd', AFTER, now_us))
    else
      lives_us = now_us + drain_us + 900000
      local lives_ms = math.ceil((drain_us + 900000) / 1000) + kept_ms
      call('SET', key, encode('<ddSTATE_FORMATd', wanted, lives_us, AFTER, now_us), 'PX', lives_ms)
    end
  end
  if reply then
    if is_charged then return true, reply, drain_us end
    return false, -1 - reply
  end
  return is_charged, {is_charged and now_us or -1 - now_us, value or ''}, drain_us
end
