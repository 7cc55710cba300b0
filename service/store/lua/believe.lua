-- believe: keeps what is believed of a host and its sources.
-- Promise: nothing is kept of a host that is gone. Safe to repeat.
-- KEYS: the shard.
-- ARGV: host id; packed sums; packed weights of its sources ('<Bf' each) or ''; '1' if no page of it has
--       new evidence any more.
-- Reply: 'believed' or 'unknown'.

register('believe', function(keys, args)
  local shard, hid = keys[1], args[1]
  enter(shard)
  local host = load_host(shard, hid)
  if not host then
    redis.call('SREM', shard .. ':dirty', hid)
    return {'unknown'}
  end
  redis.call('HSET', shard .. ':h:' .. hid, 'sums', args[2])
  if host.weights ~= args[3] then
    host.weights = args[3]
    keep_host(shard, host)
  end
  if args[4] == '1' then redis.call('SREM', shard .. ':dirty', hid) end
  return {'believed'}
end)
