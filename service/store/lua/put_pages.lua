-- put_pages: adds pages of one shard, or replaces what is believed of them.
-- Promise: a new page waits at once; a known page keeps its crawl history; an item that only names some
-- fields of a known page is answered with its record and changes nothing. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or '';
--       msgpack of what is said, [[record of such a page when new, up to its path, expected version or -1
--       (replace) or -2 (only add) or -3 (only add, and nothing is said of a known page), least crawls per
--       day or -1 (as it is)], ...];
--       msgpack [[host id, host name, [page id as text, which saying (from 1), path, ...]], ...].
-- Reply: 'put'; a letter per page: 'a' added, 'u' updated, 'k' known, 'm' moved (the version differs), 'g'
--        gone (an update of no page), 'c' crowded (no free id); then the records of those with 'k' or 'm'.

local REPLACE, NOTHING_SAID = -1, -3

-- Moves fields of one hash into another.
local function move_fields(from, to, ids)
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

-- Moves what belongs there from the bin that splits next into a new last bin (linear hashing).
local function grow_host(shard, host)
  local level = 1
  while level * 2 <= host.bins do level = level * 2 end
  local from, to = host.bins - level, host.bins
  host.bins = host.bins + 1
  local ids = {}
  for _, id in ipairs(redis.call('HKEYS', record_key(shard, host.hid, from))) do
    if bin_of(tonumber(id), host.bins) == to then ids[#ids + 1] = id end
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

-- The due score of a page that starts with this record, as a number and as text; told once per saying.
local function first_due(saying)
  if not saying.due then
    saying.due = due_score({flags = 0, importance = struct.unpack('<f', saying[1], MODEL_AT)}, 0)
    saying.score = string.format('%.0f', saying.due)
  end
  return saying.due, saying.score
end

-- Anchors and due times of pages whose records were just written into one bin: {score, id, ...}.
local function settle_bin(shard, place, dues, now)
  local anchors, instant = {}, math.floor(now)
  for at = 1, #dues, 2 do
    anchors[at] = instant
    anchors[at + 1] = dues[at + 1]
  end
  redis.call('ZADD', shard .. ':a:' .. place, unpack(anchors))
  redis.call('ZADD', shard .. ':d:' .. place, unpack(dues))
end

-- Counts pages that were added, after growing the host to fit them; it is written with the others of the call.
local function count_pages(shard, host, added)
  host.pages = host.pages + added
  while host.pages > BIN_LOAD * host.bins do grow_host(shard, host) end
end

-- Adds the pages of a host whose ids are free, {id, which saying, path, ...}; notes the others in `taken`.
-- Returns how many were added; the earliest of their due scores is the host's `due`.
local function add_pages(shard, host, items, sayings, now, letters, taken)
  local bins, only, fresh, firsts, added = host.bins, host.hid .. ':0', {}, {}, 0
  for at = 1, #items, 3 do
    local id, saying = items[at], sayings[items[at + 1]]
    local bin = bins > 1 and bin_of(tonumber(id), bins) or 0
    local place = bins > 1 and host.hid .. ':' .. bin or only
    letters[#letters + 1] = 'a'
    if saying[2] < 0 and redis.call('HSETNX', shard .. ':r:' .. place, id, saying[1] .. items[at + 2]) == 1 then
      local due, score = first_due(saying)
      local dues = fresh[place]
      if not dues then
        fresh[place] = {score, id}
      else
        append(dues, score, id)
      end
      if bins > 1 and due < (firsts[bin] or math.huge) then firsts[bin] = due end
      host.due, added = math.min(host.due or math.huge, due), added + 1
    else
      taken[#taken + 1] = {#letters, host, id, saying, items[at + 2]}
    end
  end
  for place, dues in pairs(fresh) do settle_bin(shard, place, dues, now) end
  if bins > 1 and added > 0 then
    local index = {}
    for bin, due in pairs(firsts) do append(index, due, bin) end
    redis.call('ZADD', shard .. ':b:' .. host.hid, 'LT', unpack(index))
  end
  if added > 0 then count_pages(shard, host, added) end
  return added
end

-- Whether the saying is what is stored of the page already.
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

-- A page pushed on by another's id, or into the gap one left.
local function add_elsewhere(shard, host, id, bin, saying, path, now)
  local due, score = first_due(saying)
  redis.call('HSET', record_key(shard, host.hid, bin), id, saying[1] .. path)
  settle_bin(shard, host.hid .. ':' .. bin, {score, id}, now)
  if host.bins > 1 then redis.call('ZADD', shard .. ':b:' .. host.hid, 'LT', due, bin) end
  count_pages(shard, host, 1)
  keep_host(shard, host)
  index_host(shard, host, now)
end

-- A page whose id is taken: by itself, by another page, or by a gap. The letter, and its record where the
-- caller has to read it.
local function put_known(shard, place, now)
  local _, host, wanted_id, saying, path = unpack(place)
  local head, expected, floor = unpack(saying)
  local id, bin, record = find_page(shard, host, tonumber(wanted_id), path)
  if not id then return 'c' end
  if not record then
    if expected >= 0 then return 'g' end
    add_elsewhere(shard, host, id, bin, saying, path, now)
    return 'a'
  end
  if expected == NOTHING_SAID then return 'u' end
  if expected < REPLACE then return 'k', record end
  local belief, flags = head:sub(RANKING_AT, HISTORY_AT - 1), head:byte(1)
  if says_nothing_new(record, belief, flags, floor) then return 'u' end
  if expected >= 0 and record:byte(2) ~= expected then return 'm', record end
  update_page(shard, host, id, bin, record, belief, flags, floor, now)
  return 'u'
end

-- Hosts that got pages: what there is of them now, and where they wait.
local function keep_hosts(shard, hosts, now)
  local packed = {}
  for _, host in ipairs(hosts) do append(packed, host.hid, pack_host(host)) end
  if #packed > 0 then redis.call('HSET', shard .. ':hosts', unpack(packed)) end
  place_hosts(shard, hosts, now)
end

register('put_pages', function(keys, args)
  local shard = keys[1]
  local now, raw, offset, stale = enter(shard, args[1])
  local sayings, groups, letters, taken, grown, total = cmsgpack.unpack(args[2]), cmsgpack.unpack(args[3]), {}, {}, {}, 0
  local hosts = load_hosts(shard, groups)
  for _, group in ipairs(groups) do
    local host = hosts[group[1]] or new_host(group[1], group[2])
    hosts[group[1]] = host
    local added = add_pages(shard, host, group[3], sayings, now, letters, taken)
    if added > 0 then grown[#grown + 1] = host end
    total = total + added
  end
  keep_hosts(shard, grown, now)
  local reply = {'put', ''}
  for _, place in ipairs(taken) do
    letters[place[1]], reply[#reply + 1] = put_known(shard, place, now)
    if letters[place[1]] == 'a' then total = total + 1 end
  end
  if total > 0 then redis.call('HINCRBY', shard .. ':meta', 'pages', total) end
  reply[2] = table.concat(letters)
  keep_clock(shard .. ':meta', raw, offset, stale)
  return reply
end)
