-- enlist: a worker shows that it lives and learns how many do.
-- Promise: a worker that stopped enlisting is forgotten after the duration it gave.
-- KEYS: the control hash.
-- ARGV: now_ms or ''; worker id; milliseconds to be counted for, or 0 to leave.
-- Reply: 'enlisted', how many workers live, this one included.

register('enlist', function(keys, args)
  local workers = keys[1] .. ':workers'
  local now = clock(keys[1], args[1])
  redis.call('ZADD', workers, math.floor(now + tonumber(args[3])), args[2])
  redis.call('ZREMRANGEBYSCORE', workers, '-inf', now)
  return {'enlisted', redis.call('ZCARD', workers)}
end)
