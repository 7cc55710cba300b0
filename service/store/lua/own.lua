-- own: a worker takes, keeps or gives up a shard.
-- Promise: at any moment at most one worker owns the shard; an owner that stops renewing loses it by itself.
-- KEYS: the shard.
-- ARGV: now_ms or ''; worker id; milliseconds to own it for, or 0 to give it up.
-- Reply: 'owned' or 'taken'.

register('own', function(keys, args)
  local meta = keys[1] .. ':meta'
  local now, raw, offset, stale = clock(meta, args[1])
  local worker, duration_ms = args[2], tonumber(args[3])
  local stored = redis.call('HMGET', meta, 'owner', 'owned_until')
  local free = not stored[1] or stored[1] == worker or (tonumber(stored[2]) or 0) <= now
  if not free then return {'taken'} end
  redis.call('HSET', meta, 'owner', worker, 'owned_until', string.format('%.0f', now + duration_ms))
  keep_clock(meta, raw, offset, stale)
  return {duration_ms > 0 and 'owned' or 'taken'}
end)
