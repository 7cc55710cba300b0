-- fold: keeps what a worker has learned from a run of observations of one shard.
-- Promise: observations take effect once: only if all of them still wait in the stream is anything written,
-- and then they leave it. A page removed meanwhile is passed over.
-- KEYS: the shard.
-- ARGV: msgpack [stream ids]; msgpack [[host id, page id, evidence], ...]; packed calibration after them;
--       msgpack [[host id, packed trust in its sources], ...].
-- Reply: 'folded', or 'taken' if another worker was faster.

register('fold', function(keys, args)
  local shard = keys[1]
  local stream = shard .. ':observed'
  local ids = cmsgpack.unpack(args[1])
  local pending = redis.call('XPENDING', stream, 'learn', ids[1], ids[#ids], #ids)
  if #pending ~= #ids then return {'taken'} end
  local hosts = {}
  for _, item in ipairs(cmsgpack.unpack(args[2])) do
    local hid, id, evidence = unpack(item)
    if hosts[hid] == nil then
      hosts[hid] = load_host(shard, hid) or false
      if hosts[hid] then redis.call('SADD', shard .. ':dirty', hid) end
    end
    if hosts[hid] then
      local bin = bin_of(id, hosts[hid].bins)
      if redis.call('HSTRLEN', record_key(shard, hid, bin), id) > 0 then
        redis.call('HSET', evidence_key(shard, hid, bin), id, evidence)
      end
    end
  end
  for _, item in ipairs(cmsgpack.unpack(args[4])) do
    if hosts[item[1]] then redis.call('HSET', shard .. ':h:' .. item[1], 'trust', item[2]) end
  end
  redis.call('HSET', shard .. ':meta', 'calibration', args[3])
  redis.call('XACK', stream, 'learn', unpack(ids))
  redis.call('XDEL', stream, unpack(ids))
  return {'folded'}
end)
