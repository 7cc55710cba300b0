-- remodel: replaces what is believed of the pages of one bin, and how they are ranked.
-- Promise: pages whose truth is fixed, and pages whose model others changed meanwhile, are left as they are;
-- history and leases are not touched; anchors are set anew from the last crawl and the signals since, worth
-- what the new model says; due times follow. Safe to repeat.
-- KEYS: the shard.
-- ARGV: host id; bin; msgpack [[page id, version, ranking and model (52 bytes)], ...].
-- Reply: 'remodelled', how many.

-- The record with what is now believed, or nil where that is not for these pages.
local function remodelled(record, version, belief)
  if not record or record == '' then return nil end
  local flags, current = byte(record, 1, 2)
  if current ~= version or has(flags, FIXED) then return nil end
  return char(flags, (version + 1) % 256) .. sub(record, 3, 4) .. belief .. sub(record, HISTORY_AT)
end

-- Anchor and due time by a new record; nil for what stays as it is. `due`: as it waits now, if it does.
local function instants_of(host, record, due)
  local r = unpack_head(record)
  if not has(r.flags, CRAWLED) then return nil, due and due_score(r, 0) or nil end
  local depth = signals_depth(host.weights, r.signal_weight, (split_tail(record)))
  local anchor = anchor_after(r.crawled_at, r.silent_rate, depth)
  return anchor, due and due + 0 > NEW_PAGES and due_score(r, anchor) or nil
end

register('remodel', function(keys, args)
  local shard, hid, bin = keys[1], args[1], tonumber(args[2])
  enter(shard)
  local host = load_host(shard, hid)
  if not host or bin >= host.bins then return {'remodelled', 0} end
  local items, ids, records, anchors, dues = cmsgpack.unpack(args[3]), {}, {}, {}, {}
  if #items == 0 then return {'remodelled', 0} end
  for at, item in ipairs(items) do ids[at] = item[1] end
  local found = redis_call('HMGET', record_key(shard, hid, bin), unpack(ids))
  local due_at = redis_call('ZMSCORE', due_key(shard, hid, bin), unpack(ids))
  for at, item in ipairs(items) do
    local id, record = ids[at], remodelled(found[at], item[2], item[3])
    if record then
      append(records, id, record)
      local anchor, due = instants_of(host, record, due_at[at])
      if anchor then append(anchors, anchor, id) end
      if due then append(dues, due, id) end
    end
  end
  if #records > 0 then redis_call('HSET', record_key(shard, hid, bin), unpack(records)) end
  if #anchors > 0 then redis_call('ZADD', anchor_key(shard, hid, bin), unpack(anchors)) end
  if #dues > 0 then
    redis_call('ZADD', due_key(shard, hid, bin), unpack(dues))
    index_bin(shard, host, bin)
    index_host(shard, host)
  end
  return {'remodelled', #records / 2}
end)
