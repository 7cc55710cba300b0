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
local LONGEST_REST_MS = 86400000
-- Of a page whose fetches fail: up to some six days. One that always fails is worth the most, or was never crawled, and
-- so comes before all others each time: tried every hour, many of them would take all slots for ever.
local FIRST_HOLD_MS, MOST_DOUBLINGS = 30000, 14

-- A record's head with all that is believed of the page as one piece, as a list; where its fields stand in that.
local LIFE = '<BBBBc52I6I6I4BHBc3I4c4'
local FLAGS, FAILURES, GONE, BELIEF, CRAWLED_AT, TOKEN, ACCEPTED, RESULT, SIGNALS, EXPIRIES, DIGEST, MODIFIED =
  1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
local FIELDS = 14
local CEILING_AT, CREDIT_AT, IMPORTANCE_AT, SILENT_AT = 9, 33, 37, 41  -- where they start in what is believed

local function pack_life(r) return packed(LIFE, unpack(r, 1, FIELDS)) end

-- What a successful fetch found; `crawled` where neither the crawler nor a digest tells.
local function found(r, item)
  if item[7] >= 0 then return item[7] == 1 and RESULTS.ok or RESULTS.unchanged end
  if item[8] == '' or r[DIGEST] == '\0\0\0' then return RESULTS.crawled end
  return item[8] ~= r[DIGEST] and RESULTS.ok or RESULTS.unchanged
end

-- Signals that arrived during the lease and speak of a time after the fetch stay counted.
local function later_signals(page, fetched_at)
  local kept, sources, count = page.late, '', 0
  if kept then
    for at = 1, #kept, 7 do
      local index, instant = fields_of('<BI6', kept, at)
      if instant > fetched_at then
        sources, count = count_source(sources, index), count + 1
      end
    end
  end
  return sources, count
end

-- The counts of `all` less those of `later`.
local function earlier(all, later)
  if later == '' then return all end
  local left = ''
  for at = 1, #all, 2 do
    local source, count = byte(all, at), byte(all, at + 1)
    for other = 1, #later, 2 do
      if byte(later, other) == source then count = count - byte(later, other + 1) end
    end
    if count > 0 then left = left .. char(source, count) end
  end
  return left
end

-- Hands (τ, n per source, changed) to the workers; what was predicted goes along to be checked.
local function observe(call, host, page, item, fetched_at, later)
  local r = page.head
  local sources = earlier(page.sources, later)
  local silent_rate, own = fields_of('<ff', r[BELIEF], SILENT_AT)
  local depth = silent_rate * (fetched_at - r[CRAWLED_AT]) / 1000 + signals_depth(host.weights, own, sources)
  local changed = found(r, item) == RESULTS.ok and 1 or 0
  local since_ms = 0  -- unknown; a date after the fetch counts as one at the fetch
  if item[10] > 0 then since_ms = max(1, floor(fetched_at - item[10] * 1000)) end
  local observation = packed('<I4I6I6Bf', page.id, floor(fetched_at - r[CRAWLED_AT]), since_ms, changed, depth)
  redis_call('XADD', call.observations, '*', 'o', observation .. host.hid .. sources)
  call.observed = true
end

local function rest_after_busy(host, item, now)
  local wait_ms = min(LONGEST_REST_MS, item[11])
  if item[6] == 'busy' then
    host.strikes = host.strikes + 1
    wait_ms = max(wait_ms, backoff_ms(host.strikes - 1))
  end
  host.busy_until = max(host.busy_until, floor(now + wait_ms))
  rest_host(host, now + wait_ms)
  host.moved, host.changed = true, true
end

-- The page waits from now on; its host is woken with the others at the end.
local function await_crawl(call, host, page, due)
  redis_call('ZADD', due_key(call.shard, host.hid, page.bin), due, page.name)
  if host.bins > 1 then redis_call('ZADD', call.shard .. ':b:' .. host.hid, 'LT', due, page.bin) end
  if not host.due or due < host.due then host.due = due end
end

-- When the page is due by what is believed of it.
local function due_of(r, anchor)
  if not has(r[FLAGS], CRAWLED) then return first_due((fields_of('<f', r[BELIEF], IMPORTANCE_AT))) end
  local interval_s, credit_s = fields_of('<f', r[BELIEF]), fields_of('<f', r[BELIEF], CREDIT_AT)
  local ceiling = interval_s < 0 and fields_of('<f', r[BELIEF], CEILING_AT) or 0
  return ranked_due(interval_s, ceiling, aged_since(anchor, credit_s, r[CRAWLED_AT], r[SIGNALS]))
end

-- Writes a successful crawl: history, anchor, and the page waits for its next due time.
local function take_success(call, host, page, item)
  local shard, r, bin = call.shard, page.head, page.bin
  local fetched_at = item[5] >= 0 and min(item[5], call.now) or call.now
  fetched_at = max(fetched_at, r[CRAWLED_AT])
  local sources, signals = later_signals(page, fetched_at)
  local result = found(r, item)
  if has(r[FLAGS], CRAWLED) and result ~= RESULTS.crawled and fetched_at > r[CRAWLED_AT] then
    observe(call, host, page, item, fetched_at, sources)
  end
  r[RESULT] = result
  r[FAILURES], r[GONE], r[EXPIRIES] = 0, 0, 0
  r[CRAWLED_AT], r[SIGNALS] = floor(fetched_at), signals
  if item[8] ~= '' then r[DIGEST] = item[8] end
  r[MODIFIED] = item[10] > 0 and item[10] or r[MODIFIED]
  if not has(r[FLAGS], CRAWLED) then r[FLAGS] = r[FLAGS] + CRAWLED end
  local rest = page.rest
  if item[9] ~= '' then rest = char(#item[9]) .. item[9] .. sub(rest, 2 + byte(rest)) end
  local anchor = r[CRAWLED_AT]
  if sources ~= '' then
    local silent_rate, own = fields_of('<ff', r[BELIEF], SILENT_AT)
    anchor = anchor_after(anchor, silent_rate, signals_depth(host.weights, own, sources))
  end
  redis_call('HSET', record_key(shard, host.hid, bin), page.name, pack_life(r) .. pack_tail(sources, rest))
  redis_call('ZADD', anchor_key(shard, host.hid, bin), anchor, page.name)
  if host.strikes > 0 then host.strikes, host.changed = 0, true end
  await_crawl(call, host, page, due_of(r, anchor))
end

local function give_up(shard, host, page, now)
  local r = page.head
  r[FLAGS] = r[FLAGS] + PARKED
  redis_call('HSET', record_key(shard, host.hid, page.bin), page.name, pack_life(r) .. pack_tail(page.sources, page.rest))
  redis_call('ZADD', shard .. ':parked', floor(now), page.member)
end

-- A fetch that says nothing about the content: the page is held back for a while, the anchor stays.
local function hold_page(shard, host, page, now, wait_ms)
  local r = page.head
  r[FLAGS] = r[FLAGS] + HELD
  redis_call('HSET', record_key(shard, host.hid, page.bin), page.name, pack_life(r) .. pack_tail(page.sources, page.rest))
  redis_call('ZADD', shard .. ':held', floor(now + wait_ms), page.member)
end

local function take_failure(call, host, page, item)
  local shard, r, now = call.shard, page.head, call.now
  r[RESULT], r[EXPIRIES] = RESULTS[item[6]], 0
  r[GONE] = item[6] == 'gone' and min(255, r[GONE] + 1) or 0
  if r[GONE] >= 2 then return give_up(shard, host, page, now) end
  if item[6] == 'busy' then
    redis_call('HSET', record_key(shard, host.hid, page.bin), page.name, pack_life(r) .. pack_tail(page.sources, page.rest))
    local anchor = tonumber(redis_call('ZSCORE', anchor_key(shard, host.hid, page.bin), page.name))
    return await_crawl(call, host, page, due_of(r, anchor))
  end
  r[FAILURES] = min(255, r[FAILURES] + 1)
  hold_page(shard, host, page, now, FIRST_HOLD_MS * 2 ^ min(r[FAILURES] - 1, MOST_DOUBLINGS))
end

-- Whether an outcome says what the accepted one of its lease said.
local function agrees(r, item)
  if item[6] ~= 'ok' then return r[RESULT] == RESULTS[item[6]] end
  if item[7] < 0 then return r[RESULT] == RESULTS.ok or r[RESULT] == RESULTS.unchanged or r[RESULT] == RESULTS.crawled end
  return r[RESULT] == (item[7] == 1 and RESULTS.ok or RESULTS.unchanged)
end

-- 'accepted' if the outcome may be applied, else the word that refuses it.
local function judge(shard, page, item, now)
  local r, token = page.head, item[4]
  if token == 0 then
    if has(r[FLAGS], CRAWLED) and item[5] >= 0 and item[5] <= r[CRAWLED_AT] then return 'duplicate' end
    -- The crawl itself will tell a repeat of a fetch whose time is known.
    if item[6] == 'ok' and item[5] >= 0 and item[5] <= now then return 'accepted' end
    -- Without a lease or a time, what is said of a page twice within seconds is said once, also across the edge of
    -- a window.
    local instant = item[5] >= 0 and item[5] or floor(now / LEASELESS_WINDOW_MS)
    local name = string.format('o:%s:%.0f:%s', page.member, instant, item[6])
    local before = item[5] < 0 and string.format('o:%s:%.0f:%s', page.member, instant - 1, item[6])
    return is_repeat(shard, name, now, before) and 'duplicate' or 'accepted'
  end
  if r[ACCEPTED] ~= 0 and token % 4294967296 == r[ACCEPTED] then
    return agrees(r, item) and 'duplicate' or 'conflict'
  end
  return token == r[TOKEN] and token % 65536 > 0 and 'accepted' or 'stale'
end

-- The tokens of the leases these items speak of, by member; false where there is none.
local function tokens_of(shard, items)
  local members, tokens = {}, {}
  for at, item in ipairs(items) do members[at] = member_of(item[1], item[2]) end
  for at, token in ipairs(redis_call('HMGET', shard .. ':tokens', unpack(members))) do tokens[members[at]] = token end
  return tokens
end

-- The page an item speaks of, as it is with its lease; nil if there is none.
local function page_of(call, host, item)
  local id, bin, record = find_page(call.shard, host, item[2], item[3])
  if not record then return nil end
  local name = string.format('%d', id)
  local member = host.hid .. ':' .. name
  local token = call.tokens[member]
  if token == nil then token = redis_call('HGET', call.shard .. ':tokens', member) end  -- its id is another's next
  record = as_leased(record, token)
  local sources, rest = split_tail(record)
  return {id = id, bin = bin, name = name, member = member, head = {fields_of(LIFE, record)}, sources = sources,
    rest = rest, late = false}
end

-- Takes the page out of where it is. That a lease ended is written for all of a call at once.
local function release_page(call, host, page)
  local shard, r = call.shard, page.head
  if r[FLAGS] % 8 == 0 then
    unwait_page(shard, host, page.bin, page.id)
    host.moved = true
  end
  if has(r[FLAGS], LEASED) then
    r[FLAGS] = r[FLAGS] - LEASED
    call.ended[#call.ended + 1], call.tokens[page.member] = page.member, false
  end
  if has(r[FLAGS], HELD) then
    r[FLAGS] = r[FLAGS] - HELD
    redis_call('ZREM', shard .. ':held', page.member)
  end
  if has(r[FLAGS], PARKED) then
    r[FLAGS] = r[FLAGS] - PARKED
    redis_call('ZREM', shard .. ':parked', page.member)
  end
  -- Signals are kept apart only while a page is leased, and all of them are counted in its record.
  page.late = r[SIGNALS] > 0 and redis_call('HGET', shard .. ':late', page.member)
  if page.late then redis_call('HDEL', shard .. ':late', page.member) end
end

local function take(call, host, item)
  local page = page_of(call, host, item)
  if not page then return 'unknown' end
  local word = judge(call.shard, page, item, call.now)
  if word ~= 'accepted' then return word end
  release_page(call, host, page)
  if item[4] > 0 then page.head[ACCEPTED] = item[4] % 4294967296 end
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
  if #call.ended > 0 then
    redis_call('ZREM', shard .. ':leases', unpack(call.ended))
    redis_call('HDEL', shard .. ':tokens', unpack(call.ended))
  end
  for _, host in pairs(hosts) do
    if host and host.changed then keep_host(shard, host) end
    if host and (host.moved or host.due) then placed[#placed + 1] = host end
  end
  place_hosts(shard, placed, call.now)
  if call.observed then redis_call('XTRIM', shard .. ':observed', 'MAXLEN', '~', MOST_OBSERVATIONS) end
end

register('outcomes', function(keys, args)
  local shard = keys[1]
  local now, raw, offset, stale = enter(shard, args[1])
  local items = cmsgpack.unpack(args[2])
  local reply, hosts, call = {'taken'}, load_hosts(shard, items), {shard = shard, now = now, ended = {},
    tokens = tokens_of(shard, items), observations = shard .. ':observed', observed = false}
  for at, item in ipairs(items) do
    local host = hosts[item[1]]
    reply[at + 1] = host and take(call, host, item) or 'unknown'
  end
  finish(call, hosts)
  keep_clock(shard .. ':meta', raw, offset, stale)
  return reply
end)
