-- reprice: renews how pages of some bins are ranked, after the price or a model moved.
-- Promise: a page whose model was changed meanwhile is left as it is; anchors, leases and history are not
-- touched; the due time follows the anchor of this moment. Safe to repeat.
-- KEYS: the shard.
-- ARGV: for each bin: host id; bin; msgpack [page ids as text]; their versions (a byte each); their rankings
--       (36 bytes each).
-- Reply: 'repriced', how many.

local RANKING_SIZE = MODEL_AT - RANKING_AT
local KEYED_BY = '<fxxxxf' .. ('x'):rep(RANKING_SIZE - 16) .. 'f'  -- interval, ceiling and credit of a ranking

local function new_due(record, ranking, anchor)
  local interval_s, ceiling, credit_s = struct.unpack(KEYED_BY, ranking)
  if credit_s < 0 then return ranked_due(interval_s, ceiling, anchor) end
  local r = unpack_head(record)
  return ranked_due(interval_s, ceiling, aged_since(anchor, credit_s, r.crawled_at, r.signals))
end

-- Writes the bin's rankings; returns how many, and whether a due time moved.
local function reprice_bin(shard, hid, bin, ids, versions, rankings)
  local key, dues = record_key(shard, hid, bin), due_key(shard, hid, bin)
  local found = redis.call('HMGET', key, unpack(ids))
  local due_at = redis.call('ZMSCORE', dues, unpack(ids))
  local anchors = redis.call('ZMSCORE', anchor_key(shard, hid, bin), unpack(ids))
  local written, scored = {}, {}
  for at, id in ipairs(ids) do
    local record = found[at]
    if record and record:byte(2) == versions:byte(at) then
      local ranking = rankings:sub((at - 1) * RANKING_SIZE + 1, at * RANKING_SIZE)
      written[#written + 1] = id
      written[#written + 1] = record:sub(1, RANKING_AT - 1) .. ranking .. record:sub(MODEL_AT)
      local due = record:byte(1) % 8 == 0 and tonumber(due_at[at] or nil) or -math.huge
      if due > -1e15 then  -- crawled, waiting and not promoted
        local moved = new_due(record, ranking, tonumber(anchors[at]))
        if moved ~= due then
          scored[#scored + 1] = moved
          scored[#scored + 1] = id
        end
      end
    end
  end
  if #written > 0 then redis.call('HSET', key, unpack(written)) end
  if #scored > 0 then redis.call('ZADD', dues, unpack(scored)) end
  return #written / 2, #scored > 0
end

register('reprice', function(keys, args)
  local shard, count, hosts, moved = keys[1], 0, {}, {}
  enter(shard)
  for at = 1, #args, 5 do
    local hid, bin = args[at], tonumber(args[at + 1])
    if hosts[hid] == nil then hosts[hid] = load_host(shard, hid) or false end
    if hosts[hid] and bin < hosts[hid].bins then
      local ids = cmsgpack.unpack(args[at + 2])
      local written, due_moved = reprice_bin(shard, hid, bin, ids, args[at + 3], args[at + 4])
      count = count + written
      if due_moved then
        index_bin(shard, hosts[hid], bin)
        moved[hid] = hosts[hid]
      end
    end
  end
  for _, host in pairs(moved) do index_host(shard, host) end
  return {'repriced', count}
end)
