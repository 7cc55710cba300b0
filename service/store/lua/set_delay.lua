-- set_delay: gives a signal source a delay of its own, or takes it back.
-- Promise: a change leaves a note of who made it. Safe to repeat.
-- KEYS: the control hash.
-- ARGV: now_ms or ''; who changes it; the source's name; delay in ms, or '' for the default.
-- Reply: 'set'.

register('set_delay', function(keys, args)
  local control, source, delay = keys[1], args[3], args[4]
  local now, raw, offset, stale = clock(control, args[1])
  local delays = control .. ':delays'
  local before = redis.call('HGET', delays, source) or ''
  if before ~= delay then
    if delay == '' then redis.call('HDEL', delays, source) else redis.call('HSET', delays, source, delay) end
    note_change(control, now, args[2], 'source', source, {late_ms = before}, {late_ms = delay})
  end
  keep_clock(control, raw, offset, stale)
  return {'set'}
end, {'allow-oom'})  -- a delay can be taken back where a store is full
