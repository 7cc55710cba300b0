-- now: the scheduler's clock.
-- Promise: reads only; never earlier than a clock already kept.
-- KEYS: the control hash.
-- ARGV: now_ms or ''.
-- Reply: 'now', now_ms.

register('now', function(keys, args)
  return {'now', string.format('%.3f', (clock(keys[1], args[1])))}
end, {'no-writes'})
