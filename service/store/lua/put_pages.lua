-- put_pages: adds pages of one shard, or replaces what is believed of them.
-- Promise: a new page waits at once; a known page keeps its crawl history; an item that only names some
-- fields of a known page is answered with its record and changes nothing. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or '';
--       a letter per page, how it is meant: 'r' replaces what is believed of a known page, 'a' only adds, 'n' only
--       adds and says nothing of a known page, 'v' replaces what was read, whose version is the record's; a
--       capital where the floor is said, too;
--       msgpack [host id, host name, number of its pages, for each its id as text, and the due score and the
--       record it has when new, then the next host, ...]: each host once, all in one list, as every table costs.
-- Reply: 'put'; a letter per page: 'a' added, 'u' updated, 'k' known, 'm' moved (the version differs), 'g'
--        gone (an update of no page), 'c' crowded (no free id); then the records of those with 'k' or 'm'.

local ONLY_ADD, NOTHING_SAID, READ_BEFORE = 1, 14, 22  -- places in the alphabet of 'a', 'n' and 'v'
local MOST_SPLITS = 4  -- of bins in one call: hosts of one size outgrow theirs at the same time
local PATH_AT = HEAD_SIZE + 3  -- in the record of a new page: it counts no signals and has no etag
local SIZES = '<I6dI4I4'  -- with what a packed host begins, up to its bins and pages

local packed_empty
local function empty_host()  -- packed, but for its name
  packed_empty = packed_empty or pack_host(new_host('', ''))
  return packed_empty
end

-- How a page is meant, and whether its floor is said.
local function meaning(call, number)
  local letter = call.hows:byte(number)
  return letter % 32, letter < 97
end

-- Notes the nth page of the host for later: its id may be taken.
local function set_aside(call, nth)
  call.taken[#call.taken + 1] = {call.hid, call.before + nth, call.at + 3 * nth}
  return nil, 0
end

-- Adds the nth page of the host to its bin: its due score, and that it is one; or neither if the id is taken.
local function add_page(call, place, nth)
  local items, at = call.items, call.at + 3 * nth
  if meaning(call, call.before + nth) == READ_BEFORE then return set_aside(call, nth) end
  if redis.call('HSETNX', call.shard .. ':r:' .. place, items[at], items[at + 2]) == 0 then
    return set_aside(call, nth)
  end
  redis.call('ZADD', call.shard .. ':d:' .. place, items[at + 1], items[at])
  return items[at + 1], 1
end

-- Which ids of these pages are taken.
local function taken_ids(call, place, nths)
  local ids, taken = {}, {}
  for at, nth in ipairs(nths) do ids[at] = call.items[call.at + 3 * nth] end
  for at, found in ipairs(redis.call('HMGET', call.shard .. ':r:' .. place, unpack(ids))) do
    if found then taken[ids[at]] = true end
  end
  return taken
end

-- Adds those of some pages of the host to their bin whose ids are free: the earliest due score, and how many.
local function add_pages(call, place, nths, is_empty)
  if #nths == 1 then return add_page(call, place, nths[1]) end
  local items, records, dues, first = call.items, {}, {}, math.huge
  local taken = is_empty and {} or taken_ids(call, place, nths)
  for _, nth in ipairs(nths) do
    local at = call.at + 3 * nth
    local id, due = items[at], items[at + 1]
    if taken[id] or meaning(call, call.before + nth) == READ_BEFORE then
      set_aside(call, nth)
    else
      taken[id] = true
      append(records, id, items[at + 2])
      append(dues, due, id)
      first = math.min(first, due)
    end
  end
  if #dues == 0 then return nil, 0 end
  redis.call('HSET', call.shard .. ':r:' .. place, unpack(records))
  redis.call('ZADD', call.shard .. ':d:' .. place, unpack(dues))
  return first, #dues / 2
end

-- The same for pages of a host of several bins.
local function add_to_bins(call, count, bins)
  local level, nths_of, index, first, added = level_of(bins), {}, {}, math.huge, 0
  for nth = 1, count do
    local id = call.items[call.at + 3 * nth]
    local bin = id % (level * 2)
    if bin >= bins then bin = id % level end
    local nths = nths_of[bin]
    if nths then nths[#nths + 1] = nth else nths_of[bin] = {nth} end
  end
  for bin, nths in pairs(nths_of) do
    local due, more = add_pages(call, call.hid .. ':' .. bin, nths)
    if due then
      append(index, due, bin)
      first, added = math.min(first, due), added + more
    end
  end
  if added > 0 then redis.call('ZADD', call.shard .. ':b:' .. call.hid, 'LT', unpack(index)) end
  return first, added
end

local function add_to_host(call, count, bins, is_new)
  if bins > 1 then return add_to_bins(call, count, bins) end
  if count == 1 then return add_page(call, call.hid .. ':0', 1) end
  local nths = {}
  for nth = 1, count do nths[nth] = nth end
  return add_pages(call, call.hid .. ':0', nths, is_new)
end

-- The hosts of a call and where they stand in its list.
local function hosts_of(items)
  local hids, places, at = {}, {}, 1
  while items[at] do
    hids[#hids + 1], places[#places + 1] = items[at], at
    at = at + 3 + 3 * items[at + 2]
  end
  return hids, places
end

-- Adds what is new; returns how many. Hosts are written together, and none is unpacked that need not be.
local function add_all(call)
  local shard, items, hids, places = call.shard, call.items, hosts_of(call.items)
  local kept, awake, rested, total = {}, {}, {}, 0
  for nth, stored in ipairs(redis.call('HMGET', shard .. ':hosts', unpack(hids))) do
    local hid, at, is_new = hids[nth], places[nth], not stored
    touch(shard, hid)
    stored = stored or empty_host() .. items[at + 1]
    local rest_until, _, bins, pages = struct.unpack(SIZES, stored)
    call.hid, call.at = hid, at
    local due, added = add_to_host(call, items[at + 2], bins, is_new)
    call.before = call.before + items[at + 2]
    if added > 0 then
      total, pages = total + added, pages + added
      bins = fit_bins(call, hid, bins, pages)
      append(kept, hid, stored:sub(1, SERVED_SIZE) .. struct.pack('<I4I4', bins, pages) .. stored:sub(SERVED_SIZE + 9))
      if rest_until == 0 then  -- so it is awake if any page waits
        append(awake, due, hid)
      else
        rested[#rested + 1] = {hid = hid, bins = bins, rest_until = rest_until, due = due + 0}
      end
    end
  end
  if total == 0 then return 0 end
  redis.call('HSET', shard .. ':hosts', unpack(kept))
  if #awake > 0 then redis.call('ZADD', shard .. ':awake', 'LT', unpack(awake)) end
  if #rested > 0 then place_hosts(shard, rested, call.now) end
  stands_ready(NEVER_CRAWLED, call.now)
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
  local shard = keys[1]
  local now, raw, offset, stale = enter(shard, args[1])
  local call = {shard = shard, now = now, hows = args[2], items = cmsgpack.unpack(args[3]), taken = {}, before = 0,
    splits = MOST_SPLITS}
  local total, reply, letters = add_all(call), {'put', ('a'):rep(#args[2])}, {}
  if #call.taken > 0 then
    table.sort(call.taken, function(one, other) return one[2] < other[2] end)
    local hosts = load_hosts(shard, call.taken)
    for number = 1, #args[2] do letters[number] = 'a' end
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
