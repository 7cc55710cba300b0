-- set_bandwidth: turns the one dial.
-- Promise: the next slot obeys the new rate, and over every window the slots stay within the integral of
-- the rate plus one: what had passed of the current slot is carried over in proportion. The version moves
-- only when the rate does. Safe to repeat.
-- KEYS: the control hash.
-- ARGV: now_ms or ''; crawls per second; expected version or '' for any; '1' to set only if never set; who turns it.
-- Reply: 'set', rate, version; or 'moved', rate, version when the version was not the expected one.

register('set_bandwidth', function(keys, args)
  local control = keys[1]
  local now, raw, offset, stale = clock(control, args[1])
  local rate = tonumber(args[2])
  local stored = redis.call('HMGET', control, 'rate', 'slot', 'left', 'version')
  local old, slot, left = tonumber(stored[1]), tonumber(stored[2]) or now, tonumber(stored[3]) or 0
  local version = tonumber(stored[4]) or 0
  if args[3] ~= '' and tonumber(args[3]) ~= version then return {'moved', stored[1], tostring(version)} end
  if old and (args[4] == '1' or old == rate) then return {'set', stored[1], tostring(version)} end
  if old and old > 0 and slot > now then left = (slot - now) * old / 1000 elseif old ~= 0 then left = 0 end
  if rate > 0 then
    if left > 0 then slot = now + left * 1000 / rate
    else slot = now end
  end
  redis.call('HSET', control, 'rate', string.format('%.17g', rate), 'slot', string.format('%.6f', slot),
    'left', string.format('%.17g', left), 'version', version + 1)
  if old then
    note_change(control, now, args[5], 'bandwidth', '', {rate = old}, {rate = rate})
    -- Few picks are trusted after a turn of the dial, so that the price follows within tens of crawls.
    redis.call('HSET', control, 'picks', math.min(tonumber(redis.call('HGET', control, 'picks')) or 0, 20))
  end
  keep_clock(control, raw, offset, stale)
  return {'set', string.format('%.17g', rate), tostring(version + 1)}
end)
