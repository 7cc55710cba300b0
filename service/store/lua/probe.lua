-- probe: shows that a shard can be read and written now.
-- Promise: changes nothing but a marker that expires.
-- KEYS: the shard or the control hash.
-- ARGV: none.
-- Reply: 'ready'.

register('probe', function(keys)
  redis.call('SET', keys[1] .. ':probe', '1', 'PX', 1000)
  return {'ready'}
end)
