-- reprice: renews how pages of some bins are ranked, after the price or a model moved.
-- Promise: a page whose model was changed meanwhile is left as it is; anchors, leases and history are not
-- touched; the due time follows the anchor of this moment. Safe to repeat.
-- KEYS: the shard.
-- ARGV: for each bin: host id; bin; msgpack [page ids as text]; their versions (a byte each); their rankings
--       (36 bytes each).
-- Reply: 'repriced', how many.

local RANKING_SIZE = MODEL_AT - RANKING_AT
local KEYED_BY = '<fxxxxf' .. ('x'):rep(RANKING_SIZE - 16) .. 'f'  -- interval, ceiling and credit of a ranking

-- The anchor of a waiting page: what its due time was computed from, exactly, or where that cannot be told itself.
local function anchor_at(record, due, key, id)
  local interval_s, _, credit_s = struct.unpack(KEYED_BY, record, RANKING_AT)
  if credit_s < 0 and interval_s >= 0 and due > -8e14 and due < 2.8e15 then
    local anchor = math.ceil(due - interval_s * 1000)
    if math.floor(anchor + interval_s * 1000) == due then return anchor end
  end
  return tonumber(redis.call('ZSCORE', key, id))
end

-- The due time by a new ranking of a page that has been crawled.
local function new_due(record, ranking, due, key, id)
  local interval_s, ceiling, credit_s = struct.unpack(KEYED_BY, ranking)
  if interval_s < 0 then return ranked_due(interval_s, ceiling) end
  if credit_s < 0 then return ranked_due(interval_s, ceiling, anchor_at(record, due, key, id)) end
  local r = unpack_head(record)
  return ranked_due(interval_s, ceiling, aged_since(nil, credit_s, r.crawled_at, r.signals))
end

-- Writes the bin's rankings; returns how many, and whether a due time moved.
local function reprice_bin(shard, hid, bin, ids, versions, rankings)
  local key, dues, anchors = record_key(shard, hid, bin), due_key(shard, hid, bin), anchor_key(shard, hid, bin)
  local found, due_at = redis.call('HMGET', key, unpack(ids)), redis.call('ZMSCORE', dues, unpack(ids))
  local written, scored = {}, {}
  for at, id in ipairs(ids) do
    local record = found[at]
    if record and record:byte(2) == versions:byte(at) then
      local ranking = rankings:sub((at - 1) * RANKING_SIZE + 1, at * RANKING_SIZE)
      append(written, id, record:sub(1, RANKING_AT - 1) .. ranking .. record:sub(MODEL_AT))
      local due = record:byte(1) % 8 == 0 and tonumber(due_at[at] or nil) or -math.huge
      if due > -1e15 then  -- crawled, waiting and not promoted
        local moved = new_due(record, ranking, due, anchors, id)
        if moved ~= due then append(scored, moved, id) end
      end
    end
  end
  if #written > 0 then redis.call('HSET', key, unpack(written)) end
  if #scored > 0 then redis.call('ZADD', dues, unpack(scored)) end
  return #written / 2, #scored > 0
end

-- The hosts of a call by their ids: as much of them as decides where they wait.
local function hosts_of(shard, args)
  local hids, hosts = {}, {}
  for at = 1, #args, 5 do
    if hids[#hids] ~= args[at] then hids[#hids + 1] = args[at] end
  end
  for at, raw in ipairs(redis.call('HMGET', shard .. ':hosts', unpack(hids))) do
    touch(shard, hids[at])
    if raw then
      local rest_until, _, bins = struct.unpack('<I6dI4', raw)
      hosts[hids[at]] = {hid = hids[at], bins = bins, rest_until = rest_until}
    end
  end
  return hosts
end

register('reprice', function(keys, args)
  local shard, count, placed = keys[1], 0, {}
  enter(shard)
  local hosts = hosts_of(shard, args)
  for at = 1, #args, 5 do
    local host, bin = hosts[args[at]], tonumber(args[at + 1])
    if host and bin < host.bins then
      local ids = cmsgpack.unpack(args[at + 2])
      local written, due_moved = reprice_bin(shard, host.hid, bin, ids, args[at + 3], args[at + 4])
      count = count + written
      if due_moved then
        index_bin(shard, host, bin)
        if not host.moved then placed[#placed + 1] = host end
        host.moved = true
      end
    end
  end
  place_hosts(shard, placed, 0)  -- a rest that is over is left to its timer, which tells of pages that stand ready
  return {'repriced', count}
end)
