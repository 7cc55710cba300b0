-- signals: counts change signals of one shard and ages their pages by them.
-- Promise: a signal with an id counts once; one without counts once per page, source and window; signals
-- older than the last crawl, or within the source's delay after it, are not counted. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or ''; window_ms;
--       msgpack [[host id, page id, path, source index, at_ms or -1, id hash or '', delay_ms], ...].
-- Reply: 'counted', then per item 'accepted', 'duplicate', 'stale' (before the last crawl) or 'unknown'.

local MAX_LATE = 64  -- signals remembered for a page on lease
local MOST_NAMES = 1000  -- given to one command

-- The names a signal may have been counted under: its id, or its page and source in this window. A repeat
-- that straddles the edge of a window is still a repeat.
local function names_of(item, id, now, window_ms)
  if item[6] ~= '' then return item[6], nil end
  local stem = item[1] .. ':' .. string.format('%d', id) .. ':' .. item[4] .. ':'
  local window = math.floor(now / window_ms)
  return stem .. string.format('%d', window), stem .. string.format('%d', window - 1)
end

-- Which names were counted within one to two generations; new ones are to be added to `seen.fresh`.
local function look_up(shard, names, now)
  local generation, known = math.floor(now / GENERATION_MS), {}
  local current = shard .. ':seen:' .. string.format('%d', generation)
  for back = 0, 1 do
    local key = shard .. ':seen:' .. string.format('%d', generation - back)
    for from = 1, #names, MOST_NAMES do
      local found = redis.call('SMISMEMBER', key, unpack(names, from, math.min(#names, from + MOST_NAMES - 1)))
      for at, is_member in ipairs(found) do
        if is_member == 1 then known[names[from + at - 1]] = true end
      end
    end
  end
  return {known = known, fresh = {}, key = current}
end

local function is_counted_already(seen, signal)
  if seen.known[signal.name] or (signal.before and seen.known[signal.before]) then return true end
  seen.known[signal.name] = true
  seen.fresh[#seen.fresh + 1] = signal.name
  return false
end

local function remember_late(shard, member, item, at)
  local kept = redis.call('HGET', shard .. ':late', member) or ''
  if #kept < MAX_LATE * 7 then
    redis.call('HSET', shard .. ':late', member, kept .. struct.pack('<BI6', item[4], math.max(0, math.floor(at))))
  end
end

-- Counts a signal in the page as read; `write_page` keeps it.
local function count_signal(shard, page, item, at)
  if not page.head then
    page.head = unpack_head(page.record)
    page.sources, page.etag, page.path = unpack_tail(page.record)
  end
  local r = page.head
  r.signals = math.min(65535, r.signals + 1)
  page.sources = count_source(page.sources, item[4])
  if has(r.flags, LEASED) then remember_late(shard, page.host.hid .. ':' .. page.name, item, at) end
  local weight = r.silent_rate > 0 and weight_of(page.host, r, item[4]) or 0
  if has(r.flags, CRAWLED) and (weight > 0 or r.credit_s > 0) then
    page.ages = true
    page.credit_ms = page.credit_ms + (weight > 0 and math.floor(weight / r.silent_rate * 1000) or 0)
  end
end

-- Writes a page whose signals were counted: its record, and what they are worth.
local function write_page(shard, page)
  local r, host, bin = page.head, page.host, page.bin
  redis.call('HSET', record_key(shard, host.hid, bin), page.name, pack_head(r) .. pack_tail(page.sources, page.etag, page.path))
  if not page.ages then return end
  local anchors = anchor_key(shard, host.hid, bin)
  local anchor = tonumber(redis.call('ZINCRBY', anchors, -page.credit_ms, page.name))
  if anchor < OLDEST_ANCHOR then
    anchor = OLDEST_ANCHOR
    redis.call('ZADD', anchors, anchor, page.name)
  end
  if r.interval_s < 0 or r.flags % 8 >= 1 then return end  -- dormant, or not waiting
  -- Signals make a page due sooner; a promoted one stays where it is.
  local due = due_score(r, anchor)
  redis.call('ZADD', due_key(shard, host.hid, bin), 'XX', 'LT', due, page.name)
  if host.bins > 1 then redis.call('ZADD', shard .. ':b:' .. host.hid, 'LT', due, bin) end
  host.due = math.min(host.due or math.huge, due)
end

-- The pages signals speak of, each read once, and the names the signals may have been counted under.
local function read_signals(shard, items, now, window_ms)
  local hosts, pages, signals, names = load_hosts(shard, items), {}, {}, {}
  for at, item in ipairs(items) do
    local hid = item[1]
    local id, bin, record
    if hosts[hid] then id, bin, record = find_page(shard, hosts[hid], item[2], item[3]) end
    if record then
      local name = string.format('%d', id)
      local page = pages[hid .. name] or {host = hosts[hid], name = name, bin = bin, record = record, credit_ms = 0}
      pages[hid .. name] = page
      local signal = {page = page}
      signal.name, signal.before = names_of(item, id, now, window_ms)
      names[#names + 1] = signal.name
      names[#names + 1] = signal.before
      signals[at] = signal
    end
  end
  return signals, pages, hosts, names
end

local function judge_signal(shard, signal, item, seen, now)
  local record = signal.page.record
  local at = item[5] >= 0 and math.min(item[5], now) or now
  local crawled_at = struct.unpack('<I6', record, HISTORY_AT)
  if is_counted_already(seen, signal) then return 'duplicate' end
  if has(record:byte(1), CRAWLED) and (at < crawled_at or now < crawled_at + item[7]) then return 'stale' end
  count_signal(shard, signal.page, item, at)
  return 'accepted'
end

-- Writes what a call counted, once per page, host and source.
local function write_all(shard, pages, hosts, accepted, seen, now)
  for from = 1, #seen.fresh, MOST_NAMES do
    redis.call('SADD', seen.key, unpack(seen.fresh, from, math.min(#seen.fresh, from + MOST_NAMES - 1)))
  end
  if #seen.fresh > 0 then redis.call('PEXPIRE', seen.key, 3 * GENERATION_MS) end
  for _, page in pairs(pages) do
    if page.head then write_page(shard, page) end
  end
  local placed = {}
  for _, host in pairs(hosts) do
    if host and host.due then placed[#placed + 1] = host end
  end
  place_hosts(shard, placed, now)
  for source, count in pairs(accepted) do redis.call('HINCRBY', shard .. ':counted', source, count) end
end

register('signals', function(keys, args)
  local shard = keys[1]
  local now, raw, offset, stale = enter(shard, args[1])
  local items = cmsgpack.unpack(args[3])
  local signals, pages, hosts, names = read_signals(shard, items, now, tonumber(args[2]))
  local reply, accepted = {'counted'}, {}
  local seen = #names > 0 and look_up(shard, names, now)
  for at, item in ipairs(items) do
    local word = signals[at] and judge_signal(shard, signals[at], item, seen, now) or 'unknown'
    if word == 'accepted' then accepted[item[4]] = (accepted[item[4]] or 0) + 1 end
    reply[at + 1] = word
  end
  if seen then write_all(shard, pages, hosts, accepted, seen, now) end
  keep_clock(shard .. ':meta', raw, offset, stale)
  return reply
end)
