-- remodel: replaces what is believed of the pages of one bin, and how they are ranked.
-- Promise: pages whose truth is fixed, and pages whose model others changed meanwhile, are left as they are;
-- history and leases are not touched; anchors are set anew from the last crawl and the signals since, worth
-- what the new model says; due times follow. Safe to repeat.
-- KEYS: the shard.
-- ARGV: host id; bin; msgpack [[page id, version, ranking and model (52 bytes)], ...].
-- Reply: 'remodelled', how many.

register('remodel', function(keys, args)
  local shard, hid, bin = keys[1], args[1], tonumber(args[2])
  enter(shard)
  local host = load_host(shard, hid)
  if not host or bin >= host.bins then return {'remodelled', 0} end
  local records, anchors, dues = {}, {}, {}
  for _, item in ipairs(cmsgpack.unpack(args[3])) do
    local id, version, belief = unpack(item)
    local record = redis.call('HGET', record_key(shard, hid, bin), id)
    if record and record ~= '' and record:byte(2) == version and not has(record:byte(1), FIXED) then
      record = record:sub(1, 1) .. string.char((version + 1) % 256) .. record:sub(3, 4) .. belief .. record:sub(HISTORY_AT)
      records[#records + 1] = id
      records[#records + 1] = record
      local r = unpack_head(record)
      if has(r.flags, CRAWLED) then
        local depth = signals_depth(host.weights, r.signal_weight, (split_tail(record)))
        local anchor = anchor_after(r.crawled_at, r.silent_rate, depth)
        anchors[#anchors + 1] = anchor
        anchors[#anchors + 1] = id
        local due = redis.call('ZSCORE', due_key(shard, hid, bin), id)
        if due and tonumber(due) > -1e15 then
          dues[#dues + 1] = due_score(r, anchor)
          dues[#dues + 1] = id
        end
      elseif r.flags % 8 == 0 then
        dues[#dues + 1] = due_score(r, 0)
        dues[#dues + 1] = id
      end
    end
  end
  if #records > 0 then redis.call('HSET', record_key(shard, hid, bin), unpack(records)) end
  if #anchors > 0 then redis.call('ZADD', anchor_key(shard, hid, bin), unpack(anchors)) end
  if #dues > 0 then
    redis.call('ZADD', due_key(shard, hid, bin), unpack(dues))
    index_bin(shard, host, bin)
    index_host(shard, host)
  end
  return {'remodelled', #records / 2}
end)
