-- outcomes: takes what crawls of one shard found.
-- Promise: an outcome counts once, and only if its token is the newest of its page and the page is still
-- the crawler's (a lease that ran out but went to nobody else is still good); a failed fetch changes
-- nothing that is believed of the content. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or '';
--       msgpack [[host id, page id, path or '', token or 0, fetched_at_ms or -1, kind ('ok', 'failed',
--       'gone', 'busy'), changed (1, 0, or -1: tell by the digest), digest (3 bytes) or '', etag or '',
--       last_modified (epoch s) or 0, retry_after_ms or 0], ...].
-- Reply: 'taken', then per item 'accepted', 'duplicate', 'stale' (a newer lease exists, or the token was
--        never given), 'conflict' (another outcome was accepted for this lease) or 'unknown' (no such page).

local RESULTS = {ok = 1, unchanged = 2, failed = 3, gone = 4, busy = 5, crawled = 6}
local LEASELESS_WINDOW_MS = 10000
local MOST_OBSERVATIONS = 1000000  -- kept for workers that are away; the oldest are given up first
local FIRST_BACKOFF_MS, LONGEST_BACKOFF_MS, LONGEST_REST_MS = 30000, 3600000, 86400000

local function backoff_ms(count) return math.min(LONGEST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ^ math.min(count, 12)) end

-- What a successful fetch found; `crawled` where neither the crawler nor a digest tells.
local function found(r, item)
  if item[7] >= 0 then return item[7] == 1 and RESULTS.ok or RESULTS.unchanged end
  if item[8] == '' or r.digest == '\0\0\0' then return RESULTS.crawled end
  return item[8] ~= r.digest and RESULTS.ok or RESULTS.unchanged
end

-- Signals that arrived during the lease and speak of a time after the fetch stay counted.
local function later_signals(page, fetched_at)
  local kept, sources, count = page.late, '', 0
  if kept then
    for at = 1, #kept, 7 do
      local index, instant = struct.unpack('<BI6', kept, at)
      if instant > fetched_at then
        sources, count = count_source(sources, index), count + 1
      end
    end
  end
  return sources, count
end

-- The counts of `all` less those of `later`.
local function earlier(all, later)
  local left = ''
  for at = 1, #all, 2 do
    local source, count = all:byte(at), all:byte(at + 1)
    for other = 1, #later, 2 do
      if later:byte(other) == source then count = count - later:byte(other + 1) end
    end
    if count > 0 then left = left .. string.char(source, count) end
  end
  return left
end

-- Hands (τ, n per source, changed) to the workers; what was predicted goes along to be checked.
local function observe(call, host, page, item, fetched_at, later)
  local r = page.head
  local sources = earlier(page.sources, later)
  local depth = r.silent_rate * (fetched_at - r.crawled_at) / 1000
  for at = 1, #sources, 2 do
    depth = depth + sources:byte(at + 1) * weight_of(host, r, sources:byte(at))
  end
  local changed = found(r, item) == RESULTS.ok and 1 or 0
  local since_ms = 0  -- unknown; a date after the fetch counts as one at the fetch
  if item[10] > 0 then since_ms = math.max(1, math.floor(fetched_at - item[10] * 1000)) end
  local observation = struct.pack('<I4I6I6Bf', page.id, math.floor(fetched_at - r.crawled_at), since_ms, changed, depth)
  redis.call('XADD', call.shard .. ':observed', '*', 'o', observation .. host.hid .. sources)
  call.observed = true
end

local function rest_after_busy(host, item, now)
  local wait_ms = math.min(LONGEST_REST_MS, item[11])
  if item[6] == 'busy' then
    host.strikes = host.strikes + 1
    wait_ms = math.max(wait_ms, backoff_ms(host.strikes - 1))
  end
  host.busy_until = math.floor(now + wait_ms)
  rest_host(host, now + wait_ms)
  host.moved, host.changed = true, true
end

-- The page waits from now on; its host is woken with the others at the end.
local function await_crawl(call, host, page, due)
  redis.call('ZADD', due_key(call.shard, host.hid, page.bin), due, page.name)
  if host.bins > 1 then redis.call('ZADD', call.shard .. ':b:' .. host.hid, 'LT', due, page.bin) end
  host.due = math.min(host.due or math.huge, due)
end

-- Writes a successful crawl: history, anchor, and the page waits for its next due time.
local function take_success(call, host, page, item)
  local shard, r, bin = call.shard, page.head, page.bin
  local fetched_at = item[5] >= 0 and math.min(item[5], call.now) or call.now
  fetched_at = math.max(fetched_at, r.crawled_at)
  local sources, signals = later_signals(page, fetched_at)
  local result = found(r, item)
  if has(r.flags, CRAWLED) and result ~= RESULTS.crawled and fetched_at > r.crawled_at then
    observe(call, host, page, item, fetched_at, sources)
  end
  r.result = result
  r.failures, r.gone, r.expiries = 0, 0, 0
  r.crawled_at, r.signals = math.floor(fetched_at), signals
  if item[8] ~= '' then r.digest = item[8] end
  r.modified = item[10] > 0 and item[10] or r.modified
  if not has(r.flags, CRAWLED) then r.flags = r.flags + CRAWLED end
  local etag = item[9] ~= '' and item[9] or page.etag
  local record = pack_head(r) .. pack_tail(sources, etag, page.path)
  local anchor = anchor_after(host, r, record)
  redis.call('HSET', record_key(shard, host.hid, bin), page.name, record)
  redis.call('ZADD', anchor_key(shard, host.hid, bin), anchor, page.name)
  if host.strikes > 0 then host.strikes, host.changed = 0, true end
  await_crawl(call, host, page, due_score(r, anchor))
end

local function park_page(shard, host, page, now)
  local r = page.head
  r.flags = r.flags + PARKED
  redis.call('HSET', record_key(shard, host.hid, page.bin), page.id, pack_head(r) .. page.tail)
  redis.call('ZADD', shard .. ':parked', math.floor(now), page.member)
end

-- A fetch that says nothing about the content: the page is held back for a while, the anchor stays.
local function hold_page(shard, host, page, now, wait_ms)
  local r = page.head
  r.flags = r.flags + HELD
  redis.call('HSET', record_key(shard, host.hid, page.bin), page.id, pack_head(r) .. page.tail)
  redis.call('ZADD', shard .. ':held', math.floor(now + wait_ms), page.member)
end

local function take_failure(call, host, page, item)
  local shard, r, now = call.shard, page.head, call.now
  r.result = RESULTS[item[6]]
  r.gone = item[6] == 'gone' and math.min(255, r.gone + 1) or 0
  if r.gone >= 2 then return park_page(shard, host, page, now) end
  if item[6] == 'busy' then
    redis.call('HSET', record_key(shard, host.hid, page.bin), page.id, pack_head(r) .. page.tail)
    local anchor = tonumber(redis.call('ZSCORE', anchor_key(shard, host.hid, page.bin), page.id))
    return await_crawl(call, host, page, due_score(r, anchor))
  end
  r.failures = math.min(255, r.failures + 1)
  hold_page(shard, host, page, now, backoff_ms(r.failures - 1))
end

-- Whether an outcome says what the accepted one of its lease said.
local function agrees(r, item)
  if item[6] ~= 'ok' then return r.result == RESULTS[item[6]] end
  if item[7] < 0 then return r.result == RESULTS.ok or r.result == RESULTS.unchanged or r.result == RESULTS.crawled end
  return r.result == (item[7] == 1 and RESULTS.ok or RESULTS.unchanged)
end

-- 'accepted' if the outcome may be applied, else the word that refuses it.
local function judge(shard, page, item, now)
  local r, token = page.head, item[4]
  if token == 0 then
    if has(r.flags, CRAWLED) and item[5] >= 0 and item[5] <= r.crawled_at then return 'duplicate' end
    -- The crawl itself will tell a repeat of a fetch whose time is known.
    if item[6] == 'ok' and item[5] >= 0 and item[5] <= now then return 'accepted' end
    -- Without a lease or a time, what is said of a page twice within seconds is said once.
    local instant = item[5] >= 0 and item[5] or math.floor(now / LEASELESS_WINDOW_MS)
    local name = string.format('o:%s:%.0f:%s', page.member, instant, item[6])
    return is_repeat(shard, name, now) and 'duplicate' or 'accepted'
  end
  if r.accepted ~= 0 and token % 4294967296 == r.accepted then
    return agrees(r, item) and 'duplicate' or 'conflict'
  end
  return token == r.token and token % 65536 > 0 and 'accepted' or 'stale'
end

-- Takes the page out of where it is. That a lease ended is written for all of a call at once.
local function release_page(call, host, page)
  local shard, r = call.shard, page.head
  if r.flags % 8 == 0 then
    unwait_page(shard, host, page.bin, page.id)
    host.moved = true
  end
  if has(r.flags, LEASED) then
    r.flags = r.flags - LEASED
    call.ended[#call.ended + 1] = page.member
  end
  if has(r.flags, HELD) then
    r.flags = r.flags - HELD
    redis.call('ZREM', shard .. ':held', page.member)
  end
  if has(r.flags, PARKED) then
    r.flags = r.flags - PARKED
    redis.call('ZREM', shard .. ':parked', page.member)
  end
  -- Signals are kept apart only while a page is leased, and all of them are counted in its record.
  page.late = r.signals > 0 and redis.call('HGET', shard .. ':late', page.member)
  if page.late then redis.call('HDEL', shard .. ':late', page.member) end
end

local function take(call, host, item)
  local id, bin, record = find_page(call.shard, host, item[2], item[3])
  if not record then return 'unknown' end
  local name = string.format('%d', id)
  local page = {id = id, bin = bin, name = name, head = unpack_head(record), tail = record:sub(HEAD_SIZE + 1),
    member = host.hid .. ':' .. name}
  page.sources, page.etag, page.path = unpack_tail(record)
  local word = judge(call.shard, page, item, call.now)
  if word ~= 'accepted' then return word end
  release_page(call, host, page)
  if item[4] > 0 then page.head.accepted = item[4] % 4294967296 end
  if item[6] == 'busy' or item[11] > 0 then rest_after_busy(host, item, call.now) end
  if item[6] == 'ok' then
    take_success(call, host, page, item)
  else
    take_failure(call, host, page, item)
  end
  return 'accepted'
end

-- What the items of a call have in common: leases that ended, hosts to be asked again, the log's length.
local function finish(call, hosts)
  local shard, placed = call.shard, {}
  if #call.ended > 0 then redis.call('ZREM', shard .. ':leases', unpack(call.ended)) end
  for _, host in pairs(hosts) do
    if host and host.changed then keep_host(shard, host) end
    if host and (host.moved or host.due) then placed[#placed + 1] = host end
  end
  place_hosts(shard, placed, call.now)
  if call.observed then redis.call('XTRIM', shard .. ':observed', 'MAXLEN', '~', MOST_OBSERVATIONS) end
end

register('outcomes', function(keys, args)
  local shard = keys[1]
  local now, raw, offset, stale = enter(shard, args[1])
  local items = cmsgpack.unpack(args[2])
  local reply, hosts, call = {'taken'}, load_hosts(shard, items), {shard = shard, now = now, ended = {}}
  for at, item in ipairs(items) do
    local host = hosts[item[1]]
    reply[at + 1] = host and take(call, host, item) or 'unknown'
  end
  finish(call, hosts)
  keep_clock(shard .. ':meta', raw, offset, stale)
  return reply
end)
