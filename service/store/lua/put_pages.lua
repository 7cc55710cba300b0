-- put_pages: adds pages of one shard, or replaces what is believed of them.
-- Promise: a new page waits at once; a known page keeps its crawl history; an item that only names some
-- fields of a known page is answered with its record and changes nothing. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or '';
--       a letter per page, how it is meant: 'r' replaces what is believed of a known page, 'a' only adds, 'n' only
--       adds and says nothing of a known page, 'v' (all of a call or none) replaces what was read, whose version
--       is the record's; a capital where the floor is said, too;
--       msgpack [host id, ...], each once;
--       msgpack [for each host: number of its pages, its name, and for each page its id as text, and the due score
--       and the record it has when new]: all in one list, as every table costs.
-- Reply: 'put'; a letter per page: 'a' added, 'u' updated, 'k' known, 'm' moved (the version differs), 'g'
--        gone (an update of no page), 'c' crowded (no free id); then the records of those with 'k' or 'm'.

local ONLY_ADD, NOTHING_SAID, READ_BEFORE = 1, 14, 22  -- places in the alphabet of 'a', 'n' and 'v'
local MOST_SPLITS = 2  -- of bins in one call: hosts of one size outgrow theirs at the same time
local PATH_AT = HEAD_SIZE + 3  -- in the record of a new page: it counts no signals and has no etag
local SIZES = '<I6dI4I4'  -- with what a packed host begins, up to its bins and pages
local RESIZED = '<c' .. SERVED_SIZE .. 'I4I4c0'  -- a packed host: what comes before the sizes as in another, the rest

local packed_empty, empty_end
local function empty_host()  -- packed, but for its name: all of it, and what follows the sizes
  if not packed_empty then
    packed_empty = pack_host(new_host('', ''))
    empty_end = packed_empty:sub(SERVED_SIZE + 9)
  end
  return packed_empty, empty_end
end

-- How a page is meant, and whether its floor is said.
local function meaning(call, number)
  local letter = call.hows:byte(number)
  return letter % 32, letter < 97
end

-- Notes a page for later, by its number and its place in the list: its id may be taken.
local function set_aside(call, hid, number, at)
  call.taken[#call.taken + 1] = {hid, number, at}
end

-- Adds one page to its bin: the due score, or nothing if the id is taken.
local function add_page(call, hid, bin, number, at)
  local items = call.items
  local id = items[at]
  if call.reads or redis_call('HSETNX', call.records .. hid .. bin, id, items[at + 2]) == 0 then
    return set_aside(call, hid, number, at)
  end
  local due = items[at + 1]
  redis_call('ZADD', call.dues .. hid .. bin, due, id)
  return due
end

-- Which ids of these pages are taken.
local function taken_ids(call, place, ats)
  local ids, taken = {}, {}
  for nth = 1, #ats do ids[nth] = call.items[ats[nth]] end
  local found = redis_call('HMGET', call.records .. place, unpack(ids))
  for nth = 1, #ids do
    if found[nth] then taken[ids[nth]] = true end
  end
  return taken
end

-- Adds those of some pages to their bin whose ids are free: the earliest due score, and how many. `ats` are their
-- places in the list, where the host's pages begin at `begin` with the page of this number.
local function add_pages(call, hid, bin, ats, number, begin, is_empty)
  local items, place, records, dues, first, size = call.items, hid .. bin, {}, {}, math.huge, 0
  local taken = is_empty and {} or taken_ids(call, place, ats)
  for nth = 1, #ats do
    local at = ats[nth]
    local id, due = items[at], items[at + 1]
    if taken[id] or call.reads then
      set_aside(call, hid, number + (at - begin) / 3, at)
    else
      taken[id] = true
      records[size + 1], records[size + 2], dues[size + 1], dues[size + 2] = id, items[at + 2], due, id
      size, first = size + 2, min(first, due)
    end
  end
  if size == 0 then return nil, 0 end
  redis_call('HSET', call.records .. place, unpack(records))
  redis_call('ZADD', call.dues .. place, unpack(dues))
  return first, size / 2
end

-- Adds pages of a host so large that each is likely alone in its bin.
local function add_singly(call, hid, count, bins, number, at)
  local items, level, index, size, first = call.items, level_of(bins), {}, 0, math.huge
  for nth = 0, count - 1 do
    local id = items[at + 3 * nth]
    local bin = id % (level * 2)
    if bin >= bins then bin = id % level end
    local due = add_page(call, hid, ':' .. bin, number + nth, at + 3 * nth)
    if due then
      index[size + 1], index[size + 2] = due, bin
      size, first = size + 2, min(first, due)
    end
  end
  if size > 0 then redis_call('ZADD', call.shard .. ':b:' .. hid, 'LT', unpack(index)) end
  return first, size / 2
end

-- The same for a host of few bins.
local function add_to_bins(call, hid, count, bins, number, at)
  local items, level, ats_of, index, first, added = call.items, level_of(bins), {}, {}, math.huge, 0
  for place = at, at + 3 * count - 1, 3 do
    local id = items[place]
    local bin = id % (level * 2)
    if bin >= bins then bin = id % level end
    local ats = ats_of[bin]
    if ats then ats[#ats + 1] = place else ats_of[bin] = {place} end
  end
  for bin, ats in pairs(ats_of) do
    local due, more = add_pages(call, hid, ':' .. bin, ats, number, at)
    if due then
      append(index, due, bin)
      first, added = min(first, due), added + more
    end
  end
  if added > 0 then redis_call('ZADD', call.shard .. ':b:' .. hid, 'LT', unpack(index)) end
  return first, added
end

-- Adds the pages of a host from a place in the list on: the earliest due score, and how many are new.
local function add_to_host(call, hid, count, bins, number, at, is_new)
  if bins >= count then return add_singly(call, hid, count, bins, number, at) end
  if bins > 1 then return add_to_bins(call, hid, count, bins, number, at) end
  local ats = {}
  for nth = 1, count do ats[nth] = at + 3 * nth - 3 end
  return add_pages(call, hid, ':0', ats, number, at, is_new)
end

-- Keeps the sizes of the hosts that got pages (`kept`), and has them wait where their new pages say.
local function keep_hosts(call, kept, awake, rested)
  redis_call('HSET', call.shard .. ':hosts', unpack(kept))
  if #awake > 0 then redis_call('ZADD', call.shard .. ':awake', 'LT', unpack(awake)) end
  if #rested > 0 then place_hosts(call.shard, rested, call.now) end
  if notes[call.shard] then notes[call.shard].wake = nil end
  stands_ready(NEVER_CRAWLED, call.now)  -- after which no shortlist remembers any host
end

-- Adds what is new; returns how many. Hosts are written together, and none is unpacked that need not be.
local function add_all(call, hids)
  local items, empty, rest = call.items, empty_host()
  local kept, awake, rested, total, number, at = {}, {}, {}, 0, 1, 1
  local found, keeps, wakes = redis_call('HMGET', call.shard .. ':hosts', unpack(hids)), 0, 0
  for nth = 1, #hids do
    local hid, stored, count = hids[nth], found[nth], items[at]
    local rest_until, _, bins, pages = fields_of(SIZES, stored or empty)
    local due, added
    if count == 1 and bins == 1 then
      due = add_page(call, hid, ':0', number, at + 2)
      added = due and 1 or 0
    else
      due, added = add_to_host(call, hid, count, bins, number, at + 2, not stored)
    end
    if added > 0 then
      total, pages = total + added, pages + added
      if pages > BIN_LOAD * bins then bins = fit_bins(call, hid, bins, pages) end
      local behind = stored and stored:sub(SERVED_SIZE + 9) or rest .. items[at + 1]
      kept[keeps + 1], kept[keeps + 2] = hid, packed(RESIZED, stored or empty, bins, pages, behind)
      keeps = keeps + 2
      if rest_until == 0 then  -- so it is awake if any page waits
        awake[wakes + 1], awake[wakes + 2] = due, hid
        wakes = wakes + 2
      else
        rested[#rested + 1] = {hid = hid, bins = bins, rest_until = rest_until, due = due + 0}
      end
    end
    number, at = number + count, at + 2 + 3 * count
  end
  if total > 0 then keep_hosts(call, kept, awake, rested) end
  return total
end

-- Whether what is said is what is stored of the page already.
local function says_nothing_new(record, said, floor_said)
  return record:sub(MODEL_AT, HISTORY_AT - 1) == said:sub(MODEL_AT, HISTORY_AT - 1)
    and bit.band(record:byte(1), FIXED + STARTED) == said:byte(1)
    and not (floor_said and record:sub(FLOOR_AT, HEAD_SIZE) ~= said:sub(FLOOR_AT, HEAD_SIZE))
end

local function update_page(shard, host, id, bin, record, said, floor_said, now)
  local version = (record:byte(2) + 1) % 256
  local kept = record:byte(1) - bit.band(record:byte(1), FIXED + STARTED)
  local floor = (floor_said and said or record):sub(FLOOR_AT, HEAD_SIZE)
  local new = string.char(kept + said:byte(1), version) .. record:sub(3, 4) .. said:sub(RANKING_AT, HISTORY_AT - 1)
    .. record:sub(HISTORY_AT, FLOOR_AT - 1) .. floor .. record:sub(HEAD_SIZE + 1)
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
local function add_elsewhere(call, host, id, bin, due, record)
  local shard = call.shard
  redis.call('HSET', record_key(shard, host.hid, bin), id, record)
  redis.call('ZADD', due_key(shard, host.hid, bin), due, id)
  if host.bins > 1 then redis.call('ZADD', shard .. ':b:' .. host.hid, 'LT', due, bin) end
  host.pages = host.pages + 1
  host.bins = fit_bins(call, host.hid, host.bins, host.pages)
  keep_host(shard, host)
  index_host(shard, host, call.now)
end

-- A page whose id is taken: by itself, by another page, or by a gap. The letter, and its record where the
-- caller has to read it.
local function put_known(call, host, number, at)
  local shard, items, kind, floor_said = call.shard, call.items, meaning(call, number)
  if not host then return 'g' end
  local said = items[at + 2]
  local id, bin, record = find_page(shard, host, tonumber(items[at]), said:sub(PATH_AT))
  if not id then return 'c' end
  if not record then
    if kind == READ_BEFORE then return 'g' end
    add_elsewhere(call, host, id, bin, items[at + 1], said)
    return 'a'
  end
  if kind == NOTHING_SAID then return 'u' end
  if kind == ONLY_ADD then return 'k', record end
  if says_nothing_new(record, said, floor_said) then return 'u' end
  if kind == READ_BEFORE and record:byte(2) ~= said:byte(2) then return 'm', record end
  update_page(shard, host, id, bin, record, said, floor_said, call.now)
  return 'u'
end

register('put_pages', function(keys, args)
  local shard, hows = keys[1], args[2]
  local now, raw, offset, stale = enter(shard, args[1])
  local call = {shard = shard, records = shard .. ':r:', dues = shard .. ':d:', now = now, hows = hows,
    items = cmsgpack.unpack(args[4]), reads = hows:find('[vV]'), taken = {}, splits = MOST_SPLITS}
  local total, reply, letters = add_all(call, cmsgpack.unpack(args[3])), {'put', ('a'):rep(#hows)}, {}
  if #call.taken > 0 then
    table.sort(call.taken, function(one, other) return one[2] < other[2] end)
    local hosts = load_hosts(shard, call.taken)
    for number = 1, #hows do letters[number] = 'a' end
    for _, page in ipairs(call.taken) do
      local letter, record = put_known(call, hosts[page[1]], page[2], page[3])
      letters[page[2]], reply[#reply + 1] = letter, record
      if letter == 'a' then total = total + 1 end
    end
    reply[2] = table.concat(letters)
  end
  if total > 0 then redis.call('HINCRBY', shard .. ':meta', 'pages', total) end
  keep_clock(shard .. ':meta', raw, offset, stale)
  return reply
end)
