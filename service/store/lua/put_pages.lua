-- put_pages: adds pages of one shard, or replaces what is believed of them.
-- Promise: a new page waits at once; a known page keeps its crawl history; an item that only names some
-- fields of a known page is answered with its record and changes nothing. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or ''; msgpack [[host id, host name, page id, path, ranking and model (52 bytes),
--       flags (8 = fixed, 32 = starting belief), expected version or -1 (replace) or -2 (only add),
--       least crawls per day or -1 (as it is)], ...].
-- Reply: 'put', then per item 'added', 'updated', 'moved' (the version differs) or 'crowded' (no free id),
--        or {'known', record} for an item that only adds.

-- Moves what belongs there from the bin that splits next into a new last bin (linear hashing).
local function grow_host(shard, host)
  local level = 1
  while level * 2 <= host.bins do level = level * 2 end
  local from, to = host.bins - level, host.bins
  local records = redis.call('HGETALL', record_key(shard, host.hid, from))
  host.bins = host.bins + 1
  redis.call('HSET', shard .. ':h:' .. host.hid, 'bins', host.bins)
  for at = 1, #records, 2 do
    local id = tonumber(records[at])
    if bin_of(id, host.bins) == to then
      redis.call('HSET', record_key(shard, host.hid, to), id, records[at + 1])
      redis.call('HDEL', record_key(shard, host.hid, from), id)
      for _, key in ipairs({evidence_key, requests_key}) do
        local kept = redis.call('HGET', key(shard, host.hid, from), id)
        if kept then
          redis.call('HSET', key(shard, host.hid, to), id, kept)
          redis.call('HDEL', key(shard, host.hid, from), id)
        end
      end
      for _, key in ipairs({anchor_key, due_key}) do
        local score = redis.call('ZSCORE', key(shard, host.hid, from), id)
        if score then
          redis.call('ZADD', key(shard, host.hid, to), score, id)
          redis.call('ZREM', key(shard, host.hid, from), id)
        end
      end
    end
  end
  index_bin(shard, host, from)
  index_bin(shard, host, to)
end

local function new_host(shard, hid, name)
  redis.call('HSET', shard .. ':h:' .. hid, 'name', name, 'bins', 1, 'pages', 0)
  redis.call('SADD', shard .. ':hosts', hid)
  return {hid = hid, name = name, bins = 1, pages = 0, paused_until = 0, price = 0, strikes = 0, gap_ms = 0, busy_until = 0, weights = '', rest_until = 0}
end

local function add_page(shard, host, id, bin, path, belief, flags, floor, now)
  local head = struct.pack('<BBBB', flags, 0, 0, 0) .. belief
    .. struct.pack('<I6I6I4BHBc8I4f', 0, 0, 0, 0, 0, 0, string.rep('\0', 8), 0, math.max(0, floor))
  redis.call('HSET', record_key(shard, host.hid, bin), id, head .. pack_tail('', '', path))
  redis.call('ZADD', anchor_key(shard, host.hid, bin), math.floor(now), id)
  local r = unpack_head(head)
  wait_page(shard, host, bin, id, due_score(r, now), now)
  host.pages = host.pages + 1
  host.grown = true
  while host.pages > BIN_LOAD * host.bins do grow_host(shard, host) end
end

-- Whether the item says of the page what is stored already.
local function says_nothing_new(record, belief, flags, floor)
  local model = record:sub(MODEL_AT, HISTORY_AT - 1)
  return model == belief:sub(MODEL_AT - RANKING_AT + 1) and bit.band(record:byte(1), FIXED + STARTED) == flags
    and (floor < 0 or struct.pack('<f', floor) == record:sub(FLOOR_AT, HEAD_SIZE))
end

local function update_page(shard, host, id, bin, record, belief, flags, floor, now)
  local version = (record:byte(2) + 1) % 256
  local kept = record:byte(1) - bit.band(record:byte(1), FIXED + STARTED)
  local tail = record:sub(HISTORY_AT)
  if floor >= 0 then
    tail = record:sub(HISTORY_AT, FLOOR_AT - 1) .. struct.pack('<f', floor) .. record:sub(HEAD_SIZE + 1)
  end
  local new = string.char(kept + flags, version) .. record:sub(3, 4) .. belief .. tail
  redis.call('HSET', record_key(shard, host.hid, bin), id, new)
  local due = tonumber(redis.call('ZSCORE', due_key(shard, host.hid, bin), id))
  if due and (due < PROMOTED or due > -1e15) then
    local anchor = tonumber(redis.call('ZSCORE', anchor_key(shard, host.hid, bin), id))
    redis.call('ZADD', due_key(shard, host.hid, bin), due_score(unpack_head(new), anchor), id)
    index_bin(shard, host, bin)
    index_host(shard, host, now)
  end
end

local function put_one(shard, host, item, now)
  local _, _, wanted_id, path, belief, flags, expected, floor = unpack(item)
  local id, bin, record = find_page(shard, host, wanted_id, path)
  if not id then return 'crowded' end
  if not record then
    if expected >= 0 then return 'moved' end
    add_page(shard, host, id, bin, path, belief, flags, floor, now)
    return 'added'
  end
  if expected == -2 then return {'known', record} end
  if says_nothing_new(record, belief, flags, floor) then return 'updated' end
  if expected >= 0 and record:byte(2) ~= expected then return 'moved' end
  update_page(shard, host, id, bin, record, belief, flags, floor, now)
  return 'updated'
end

register('put_pages', function(keys, args)
  local shard = keys[1]
  local now, raw, offset, stale = clock(shard .. ':meta', args[1])
  local hosts, reply, added = {}, {'put'}, 0
  for _, item in ipairs(cmsgpack.unpack(args[2])) do
    local hid = item[1]
    hosts[hid] = hosts[hid] or load_host(shard, hid)
    if not hosts[hid] and item[7] < 0 then hosts[hid] = new_host(shard, hid, item[2]) end
    local word = hosts[hid] and put_one(shard, hosts[hid], item, now) or 'moved'
    if word == 'added' then added = added + 1 end
    reply[#reply + 1] = word
  end
  for hid, host in pairs(hosts) do
    if host.grown then redis.call('HSET', shard .. ':h:' .. hid, 'pages', host.pages) end
  end
  if added > 0 then redis.call('HINCRBY', shard .. ':meta', 'pages', added) end
  keep_clock(shard .. ':meta', raw, offset, stale)
  seal(shard)
  return reply
end)
