-- reprice: renews how pages of some bins are ranked, after the price or a model moved.
-- Promise: a page whose model was changed meanwhile is left as it is; anchors, leases and history are not
-- touched; the due time follows the anchor of this moment. Safe to repeat.
-- KEYS: the shard.
-- ARGV: for each bin: host id; bin; page ids as text, a byte with its size before each; their versions (a byte each);
--       their rankings (36 bytes each); the intervals and credits in these once more ('<ff' each).
-- Reply: 'repriced', how many.

local ARGS_PER_BIN = 6
local CEILING_AT = 9  -- where it starts in a ranking

-- The anchor of a crawled page: its last crawl, unless it had signals since.
local function anchor_of(record, anchors, id)
  local crawled_at, signals = fields_of('<I6xxxxxxxxxxxH', record, HISTORY_AT)
  return signals == 0 and crawled_at or tonumber(redis_call('ZSCORE', anchors, id))
end

-- The due time of a crawled page by a new ranking that does not go by its anchor.
local function due_without_anchor(record, ranking, interval_s, credit_s)
  if interval_s < 0 then return ranked_due(interval_s, (fields_of('<f', ranking, CEILING_AT))) end
  local r = unpack_head(record)
  return ranked_due(interval_s, 0, aged_since(nil, credit_s, r.crawled_at, r.signals))
end

-- The pages of these that are to be seen next, whatever they are worth.
local function promoted_of(dues, ids, pages)
  local promoted = {}
  if redis_call('ZCOUNT', dues, '-inf', NEW_PAGES) == 0 then return promoted end
  for at, due in ipairs(redis_call('ZMSCORE', dues, unpack(ids, 1, pages))) do
    if due and due + 0 <= NEW_PAGES then promoted[ids[at]] = true end
  end
  return promoted
end

-- Writes the bin's rankings; returns how many, and whether a due time moved. `written` and `scored` are tables of
-- the call, used again so that they need not grow again.
local function reprice_bin(call, place, packed_ids, versions, rankings, keyed_by)
  local key, dues, anchors = call.shard .. ':r:' .. place, call.shard .. ':d:' .. place, call.shard .. ':a:' .. place
  local pages, written, scored, writes, scores = #versions, call.written, call.scored, 0, 0
  local ids, known = {fields_of(('Bc0'):rep(pages), packed_ids)}, {versions:byte(1, pages)}
  rankings, keyed_by = {fields_of(('c36'):rep(pages), rankings)}, {fields_of('<' .. ('ff'):rep(pages), keyed_by)}
  local found, is_promoted = redis_call('HMGET', key, unpack(ids, 1, pages)), promoted_of(dues, ids, pages)
  for at = 1, pages do
    local record, id = found[at], ids[at]
    local flags, version
    if record then flags, version = byte(record, 1, 2) end
    if flags and version == known[at] then
      local ranking = rankings[at]
      writes = writes + 2
      written[writes - 1], written[writes] = id, sub(record, 1, RANKING_AT - 1) .. ranking .. sub(record, MODEL_AT)
      -- It waits by its value, unless it is on lease: that tells the sorted set, which it is not in.
      if flags % 8 == 0 and flags % (2 * CRAWLED) >= CRAWLED and not is_promoted[id] then
        local interval_s, credit_s = keyed_by[2 * at - 1], keyed_by[2 * at]
        scores = scores + 2
        scored[scores] = id
        if interval_s >= 0 and credit_s < 0 then
          scored[scores - 1] = ranked_due(interval_s, 0, anchor_of(record, anchors, id))
        else
          scored[scores - 1] = due_without_anchor(record, ranking, interval_s, credit_s)
        end
      end
    end
  end
  if writes > 0 then redis_call('HSET', key, unpack(written, 1, writes)) end
  if scores > 0 then redis_call('ZADD', dues, 'XX', unpack(scored, 1, scores)) end
  return writes / 2, scores > 0
end

-- The hosts of a call by their ids: as much of them as decides where they wait.
local function hosts_of(shard, args)
  local hids, hosts = {}, {}
  for at = 1, #args, ARGS_PER_BIN do
    if hids[#hids] ~= args[at] then hids[#hids + 1] = args[at] end
  end
  for at, raw in ipairs(redis_call('HMGET', shard .. ':hosts', unpack(hids))) do
    touch(shard, hids[at])
    if raw then
      local rest_until, _, bins = fields_of('<I6dI4', raw)
      hosts[hids[at]] = {hid = hids[at], bins = bins, rest_until = rest_until}
    end
  end
  return hosts
end

register('reprice', function(keys, args)
  local shard, count, placed = keys[1], 0, {}
  local call = {shard = shard, written = {}, scored = {}}
  enter(shard)
  local hosts = hosts_of(shard, args)
  for at = 1, #args, ARGS_PER_BIN do
    local host, bin = hosts[args[at]], tonumber(args[at + 1])
    if host and bin < host.bins then
      local place = host.hid .. ':' .. args[at + 1]
      local written, due_moved = reprice_bin(call, place, unpack(args, at + 2, at + ARGS_PER_BIN - 1))
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
