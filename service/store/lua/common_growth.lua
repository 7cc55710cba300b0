-- Shared by every function of the library, after common_index.lua: hosts that get more bins as their pages become
-- more. Defines only locals.

-- Moves fields of one hash into another.
local function move_fields(from, to, ids)
  if redis.call('EXISTS', from) == 0 then return end
  local kept, moved, gone = redis.call('HMGET', from, unpack(ids)), {}, {}
  for at, id in ipairs(ids) do
    if kept[at] then
      append(moved, id, kept[at])
      gone[#gone + 1] = id
    end
  end
  if #gone == 0 then return end
  redis.call('HSET', to, unpack(moved))
  redis.call('HDEL', from, unpack(gone))
end

-- Moves members of one sorted set into another.
local function move_members(from, to, ids)
  if redis.call('EXISTS', from) == 0 then return end
  local scores, moved, gone = redis.call('ZMSCORE', from, unpack(ids)), {}, {}
  for at, id in ipairs(ids) do
    if scores[at] then
      append(moved, scores[at], id)
      gone[#gone + 1] = id
    end
  end
  if #gone == 0 then return end
  redis.call('ZADD', to, unpack(moved))
  redis.call('ZREM', from, unpack(gone))
end

local function level_of(bins)
  local level = 1
  while level * 2 <= bins do level = level * 2 end
  return level
end

-- Moves what belongs there from the bin that splits next into a new last bin (linear hashing).
local function grow_host(shard, host)
  local level = level_of(host.bins)
  local from, to, ids = host.bins - level, host.bins, {}
  host.bins = host.bins + 1
  for _, id in ipairs(redis.call('HKEYS', record_key(shard, host.hid, from))) do
    if id % (level * 2) == to then ids[#ids + 1] = id end
  end
  if #ids > 0 then
    for _, key in ipairs({record_key, evidence_key, requests_key}) do
      move_fields(key(shard, host.hid, from), key(shard, host.hid, to), ids)
    end
    for _, key in ipairs({anchor_key, due_key}) do
      move_members(key(shard, host.hid, from), key(shard, host.hid, to), ids)
    end
  end
  index_bin(shard, host, from)
  index_bin(shard, host, to)
end

-- Grows a host until its pages fit, or as far as the call may still split bins (`call.splits`): what is left is
-- done when more pages come. How many bins it has then.
local function fit_bins(call, hid, bins, pages)
  if pages <= BIN_LOAD * bins then return bins end
  local host = {hid = hid, bins = bins}
  while pages > BIN_LOAD * host.bins and call.splits > 0 do
    grow_host(call.shard, host)
    call.splits = call.splits - 1
  end
  return host.bins
end
