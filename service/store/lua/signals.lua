-- signals: counts change signals of one shard and ages their pages by them.
-- Promise: a signal with an id counts once; one without counts once per page, source and window; signals
-- older than the last crawl, or within the source's delay after it, are not counted. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or ''; window_ms;
--       msgpack [[host id, page id, path, source index, at_ms or -1, id hash or '', delay_ms], ...].
-- Reply: 'counted', then per item 'accepted', 'duplicate', 'stale' (before the last crawl) or 'unknown'.

local MAX_LATE = 64  -- signals remembered for a page on lease
local MOST_NAMES = 1000  -- given to one command
local PAGE, NAME, BEFORE = 3, 6, 8  -- where an item holds what was found of it
local CREDIT_AT, SILENT_AT, SIGNALS_AT = 37, 45, 74  -- where credit, silent rate (and own weight), signals start

-- The names a signal may have been counted under: its id, or its page and source in this window. A repeat
-- that straddles the edge of a window is still a repeat.
local function names_of(item, id, window)
  if item[6] ~= '' then return item[6], nil end
  local stem = item[1] .. ':' .. string.format('%d', id) .. ':' .. item[4] .. ':'
  return stem .. string.format('%d', window), stem .. string.format('%d', window - 1)
end

-- Which names were counted within one to two generations; new ones are to be added to `seen.fresh`.
local function look_up(shard, names, now)
  local generation, known = floor(now / GENERATION_MS), {}
  local current = shard .. ':seen:' .. string.format('%d', generation)
  for back = 0, 1 do
    local key = shard .. ':seen:' .. string.format('%d', generation - back)
    for from = 1, #names, MOST_NAMES do
      local found = redis_call('SMISMEMBER', key, unpack(names, from, min(#names, from + MOST_NAMES - 1)))
      for at, is_member in ipairs(found) do
        if is_member == 1 then known[names[from + at - 1]] = true end
      end
    end
  end
  return {known = known, fresh = {}, key = current}
end

local function is_counted_already(seen, name, before)
  local known = seen.known
  return known[name] or before and known[before]
end

local function remember(seen, name)
  seen.known[name] = true
  seen.fresh[#seen.fresh + 1] = name
end

local function remember_late(shard, member, item, at)
  local kept = redis_call('HGET', shard .. ':late', member) or ''
  if #kept < MAX_LATE * 7 then
    redis_call('HSET', shard .. ':late', member, kept .. packed('<BI6', item[4], max(0, floor(at))))
  end
end

-- Counts a signal in the page as read; `write_page` keeps it.
local function count_signal(shard, page, item, at)
  local record, source = page.record, item[4]
  page.count, page.sources = page.count + 1, count_source(page.sources, source)
  local flags, silent_rate, own = byte(record, 1), fields_of('<ff', record, SILENT_AT)
  -- The outcome of a lease that ran out may still come.
  if page.is_leased or byte(record, SIGNALS_AT + 2) > 0 then remember_late(shard, page.member, item, at) end
  if not has(flags, CRAWLED) then return end
  local weight = silent_rate > 0 and weight_of(page.host.weights, own, source) or 0
  if weight > 0 then
    page.credit_ms = (page.credit_ms or 0) + floor(weight / silent_rate * 1000)
  elseif fields_of('<f', record, CREDIT_AT) > 0 then
    page.credit_ms = page.credit_ms or 0
  end
end

-- The due time by the page's ranking, where `anchor` and so many signals now say how old it is.
local function due_by(record, interval_s, anchor, signals)
  local credit_s, crawled_at = fields_of('<f', record, CREDIT_AT), nil
  if credit_s >= 0 then crawled_at = fields_of('<I6', record, HISTORY_AT) end
  return ranked_due(interval_s, 0, aged_since(anchor, credit_s, crawled_at, signals))
end

-- Writes a page whose signals were counted: its record, and what they are worth.
local function write_page(shard, page)
  local record, host, bin, id = page.record, page.host, page.bin, page.id
  local signals = min(65535, fields_of('<H', record, SIGNALS_AT) + page.count)
  local head = sub(record, 1, SIGNALS_AT - 1) .. packed('<H', signals) .. sub(record, SIGNALS_AT + 2, HEAD_SIZE)
  redis_call('HSET', record_key(shard, host.hid, bin), id, head .. pack_tail(page.sources, page.rest))
  if not page.credit_ms then return end
  local anchors = anchor_key(shard, host.hid, bin)
  local anchor = tonumber(redis_call('ZINCRBY', anchors, -page.credit_ms, id))
  if anchor < OLDEST_ANCHOR then
    anchor = OLDEST_ANCHOR
    redis_call('ZADD', anchors, anchor, id)
  end
  local interval_s = fields_of('<f', record, RANKING_AT)
  if interval_s < 0 or page.is_leased or byte(record, 1) % 8 >= 1 then return end  -- dormant, or not waiting
  -- Signals make a page due sooner; a promoted one stays where it is.
  local due = due_by(record, interval_s, anchor, signals)
  redis_call('ZADD', due_key(shard, host.hid, bin), 'XX', 'LT', due, id)
  if host.bins > 1 then redis_call('ZADD', shard .. ':b:' .. host.hid, 'LT', due, bin) end
  if not host.due or due < host.due then host.due = due end
end

-- The page an item speaks of, read once for all that do and kept with its host by its id; nil where there is none.
local function page_of(call, item)
  local host = call.hosts[item[1]]
  if not host then return nil end
  local id, bin, record = find_page(call.shard, host, item[2], item[3])
  if record and not host[id] then
    local sources, rest = split_tail(record)
    local page = {host = host, id = id, bin = bin, member = member_of(host.hid, id), record = record, sources = sources,
      rest = rest, count = 0, is_leased = has(byte(record, 1), LEASED),
      credit_ms = false}  -- what its signals are worth; false: they do not age it
    host[id], call.pages[#call.pages + 1] = page, page
  end
  return record and host[id]
end

-- Reads what signals speak of. Their pages and the names they may have been counted under stand in the items from
-- then on, where a path and an id were (a place that is there costs nothing); all names are returned in a row.
local function read_signals(call, items, window)
  local names, count = {}, 0
  for _, item in ipairs(items) do
    local page = page_of(call, item)
    item[PAGE] = page
    if page then
      local name, before = names_of(item, page.id, window)
      item[NAME], count = name, count + 1
      names[count] = name
      if before then
        item[BEFORE], count = before, count + 1
        names[count] = before
      end
    end
  end
  return names
end

-- Notes which pages are on lease: their signals do not move them.
local function note_leases(call)
  local members = {}
  for at, page in ipairs(call.pages) do members[at] = page.member end
  local tokens = redis_call('HMGET', call.shard .. ':tokens', unpack(members))
  for at, page in ipairs(call.pages) do page.is_leased = page.is_leased or tokens[at] ~= false end
end

local function judge_signal(call, item, seen)
  local page, now = item[PAGE], call.now
  local record, instant = page.record, item[5] >= 0 and min(item[5], now) or now
  if is_counted_already(seen, item[NAME], item[BEFORE]) then return 'duplicate' end
  -- The latest crawl this signal speaks of a time after.
  local latest, crawled_at = min(instant, now - item[7]), 0
  if has(byte(record, 1), CRAWLED) then crawled_at = fields_of('<I6', record, HISTORY_AT) end
  local is_stale = latest < crawled_at
  -- One without an id that does not count leaves its window open to one that does.
  if not (is_stale and item[BEFORE]) then remember(seen, item[NAME]) end
  if is_stale then return 'stale' end
  count_signal(call.shard, page, item, latest)
  return 'accepted'
end

-- Writes what a call counted, once per page, host and source.
local function write_all(call, accepted, seen)
  local shard, fresh = call.shard, seen.fresh
  for from = 1, #fresh, MOST_NAMES do
    redis_call('SADD', seen.key, unpack(fresh, from, min(#fresh, from + MOST_NAMES - 1)))
  end
  if #fresh > 0 then redis_call('PEXPIRE', seen.key, 3 * GENERATION_MS) end
  for _, page in ipairs(call.pages) do
    if page.count > 0 then write_page(shard, page) end
  end
  local placed = {}
  for _, host in pairs(call.hosts) do
    if host and host.due then placed[#placed + 1] = host end
  end
  place_hosts(shard, placed, call.now)
  for source, count in pairs(accepted) do redis_call('HINCRBY', shard .. ':counted', source, count) end
end

register('signals', function(keys, args)
  local shard = keys[1]
  local now, raw, offset, stale = enter(shard, args[1])
  local items = cmsgpack.unpack(args[3])
  local call = {shard = shard, now = now, hosts = load_hosts(shard, items), pages = {}}
  local names = read_signals(call, items, floor(now / tonumber(args[2])))
  local reply, accepted = {'counted'}, {}
  local seen = #names > 0 and look_up(shard, names, now)
  if seen then note_leases(call) end
  for at, item in ipairs(items) do
    local word = item[PAGE] and judge_signal(call, item, seen) or 'unknown'
    if word == 'accepted' then accepted[item[4]] = (accepted[item[4]] or 0) + 1 end
    reply[at + 1] = word
  end
  if seen then write_all(call, accepted, seen) end
  keep_clock(shard .. ':meta', raw, offset, stale)
  return reply
end)
