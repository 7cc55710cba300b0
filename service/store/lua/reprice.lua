-- reprice: renews how the pages of one bin are ranked, after the price or a model moved.
-- Promise: a page whose model was changed meanwhile is left as it is; anchors, leases and history are not
-- touched; the due time follows the anchor of this moment. Safe to repeat.
-- KEYS: the shard.
-- ARGV: host id; bin; msgpack [[page id, version, ranking (36 bytes)], ...].
-- Reply: 'repriced', how many.

register('reprice', function(keys, args)
  local shard, hid, bin = keys[1], args[1], tonumber(args[2])
  local host = load_host(shard, hid)
  if not host or bin >= host.bins then return {'repriced', 0} end
  local records, dues = record_key(shard, hid, bin), due_key(shard, hid, bin)
  local written, scored = {}, {}
  for _, item in ipairs(cmsgpack.unpack(args[3])) do
    local id, version, ranking = unpack(item)
    local record = redis.call('HGET', records, id)
    if record and record:byte(2) == version then
      record = record:sub(1, RANKING_AT - 1) .. ranking .. record:sub(MODEL_AT)
      written[#written + 1] = id
      written[#written + 1] = record
      local flags = record:byte(1)
      local due = flags % 8 == 0 and tonumber(redis.call('ZSCORE', dues, id)) or -math.huge
      if due > -1e15 then  -- crawled, waiting and not promoted
        local anchor = tonumber(redis.call('ZSCORE', anchor_key(shard, hid, bin), id))
        scored[#scored + 1] = due_score(unpack_head(record), anchor)
        scored[#scored + 1] = id
      end
    end
  end
  if #written > 0 then redis.call('HSET', records, unpack(written)) end
  if #scored > 0 then
    redis.call('ZADD', dues, unpack(scored))
    index_bin(shard, host, bin)
    index_host(shard, host)
    seal(shard)
  end
  return {'repriced', #written / 2}
end)
