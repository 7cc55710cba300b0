-- next: leases the pages worth most now to the requests that wait in one API process.
-- Promise: a slot is granted once, slots are 1/bandwidth apart and never caught up; a leased page is out
-- of every sorted set until its outcome or expiry; a host is left alone for its rest; the same request id
-- within a minute gets the same leases. Nothing is spent when nothing is leased.
-- KEYS: the control hash, then the shards to choose from (all of them on one server).
-- ARGV: now_ms or '' for the server's clock;
--       msgpack [lease_ms, lookahead_ms, default_rest_ms, salt (0..65535)];
--       msgpack [[request id or '', n], ...] in the order of arrival.
-- Reply: 'leased', or why somebody got nothing ('pace', 'politeness', 'no-pages', 'paused'); now_ms;
--        milliseconds until asking again may help; msgpack [pages of request 1, pages of request 2, ...].

local PRICE_WEIGHT = 0.01  -- of one served value in the price: slower lags after a step, faster is noisy
local REPLAY_MS = 60000
local GRACE_MS = 10  -- a slot this near is as good as free; `not_before` says when it starts
local FIRST_VALUE = 'ncis/freshness'  -- what pages are ranked by before anybody chose
local PAGES_PER_HOST = 16  -- candidates looked at per host
local BASE_CANDIDATES = 96  -- candidates looked at per call, plus two per page wanted

local function open_shards(keys, now)
  local shards = {}
  for at = 2, #keys do
    local prefix = keys[at]
    local meta = redis.call('HMGET', prefix .. ':meta', 'best', 'wake', 'seq', 'ranked_by')
    local wake = tonumber(meta[2])
    local shard = {prefix = prefix, index = at - 2, seq = tonumber(meta[3]) or 0, best = tonumber(meta[1]),
      leases = 0, wake = wake, at = 0, heads = {}, ranked_by = meta[4] or FIRST_VALUE}
    if wake and wake <= now then
      run_timers(prefix, now)
      shard.touched = true
      shard.best = tonumber(redis.call('ZRANGE', prefix .. ':awake', 0, 0, 'WITHSCORES')[2])
    end
    shards[#shards + 1] = shard
  end
  return shards
end

-- The due time of the next unseen awake host of a shard; reads them a few at a time.
local function head_due(shard)
  if shard.at == 0 then return shard.best end
  local head = shard.heads[shard.at]
  if head then return head.due end
  return nil
end

local function read_heads(shard)
  local chunk = redis.call('ZRANGE', shard.prefix .. ':awake', shard.read or 0, (shard.read or 0) + 7, 'WITHSCORES')
  shard.read = (shard.read or 0) + 8
  shard.heads, shard.at = {}, 1
  for at = 1, #chunk, 2 do
    shard.heads[#shard.heads + 1] = {hid = chunk[at], due = tonumber(chunk[at + 1])}
  end
end

-- The awake host with the earliest due time over all shards that has not been looked at yet.
local function next_head(shards)
  local best, best_due
  for _, shard in ipairs(shards) do
    local due = head_due(shard)
    if due and (not best_due or due < best_due) then best, best_due = shard, due end
  end
  if not best then return nil end
  if best.at == 0 then read_heads(best) end
  local head = best.heads[best.at]
  best.at = best.at + 1
  if best.at > #best.heads and #best.heads == 8 then read_heads(best) end
  return best, head
end

local function add_candidates(found, shard, host, bin, now, limit)
  local key = due_key(shard.prefix, host.hid, bin)
  local pages = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
  if #pages == 0 then pages = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES') end
  for at = 1, #pages, 2 do
    local id, due = tonumber(pages[at]), tonumber(pages[at + 1])
    local record = redis.call('HGET', record_key(shard.prefix, host.hid, bin), id)
    if record then
      found[#found + 1] = {shard = shard, host = host, bin = bin, id = id, due = due, record = record,
        value = value_now(shard.prefix, host.hid, bin, id, record, due, now)}
    end
  end
end

-- Candidates: the pages at or above the price in due order, or the nearest few if nobody is due.
local function gather(shards, now, budget)
  local found = {}
  local near = 0
  while #found < budget do
    local shard, head = next_head(shards)
    if not head then break end
    if head.due > now then
      near = near + 1
      if #found > 0 and near > 4 or near > 8 then break end
    end
    local host = load_host(shard.prefix, head.hid)
    if host and host.bins == 1 then
      add_candidates(found, shard, host, 0, now, PAGES_PER_HOST)
    elseif host then
      for _, bin in ipairs(redis.call('ZRANGE', shard.prefix .. ':b:' .. head.hid, 0, 3)) do
        add_candidates(found, shard, host, tonumber(bin), now, PAGES_PER_HOST / 2)
      end
    end
  end
  return found
end

-- New pages first, by importance (which orders their due scores); then by crawl value.
local function worth_more(a, b)
  local a_new, b_new = a.due <= -1e15, b.due <= -1e15
  if a_new or b_new then
    if a_new and b_new then return a.due < b.due end
    return a_new
  end
  return a.value > b.value
end

local function lease(c, at_ms, slot, lease_ms, rest_ms, salt, now)
  local prefix, host = c.shard.prefix, c.host
  local r = unpack_head(c.record)
  c.shard.seq = c.shard.seq + 1
  c.shard.leases = c.shard.leases + 1
  c.shard.touched = true
  r.flags = r.flags + LEASED
  r.token = (c.shard.seq % 4294967296) * 65536 + salt
  local anchor = tonumber(redis.call('ZSCORE', anchor_key(prefix, host.hid, c.bin), c.id))
  local expires_at = math.floor(at_ms + lease_ms)
  redis.call('HSET', record_key(prefix, host.hid, c.bin), c.id, pack_head(r) .. c.record:sub(HEAD_SIZE + 1))
  unwait_page(prefix, host, c.bin, c.id)
  redis.call('ZADD', prefix .. ':timers', expires_at, 'l:' .. host.hid .. ':' .. string.format('%d', c.id))
  if rest_ms > 0 then
    rest_host(prefix, host.hid, at_ms + rest_ms)
    local price = host.price > 0 and host.price + 0.05 * (c.value - host.price) or c.value
    redis.call('HSET', prefix .. ':h:' .. host.hid, 'price', string.format('%.9g', price))
  else
    index_host(prefix, host)
  end
  local _, etag, path = unpack_tail(c.record)
  local elapsed_ms = has(r.flags, CRAWLED) and now - anchor or -1
  return {c.shard.index, host.hid, c.id, r.token, host.name, path, slot, expires_at, c.value, elapsed_ms,
    r.silent_rate, r.signals, r.crawled_at, etag, r.modified}
end

-- The price follows what is served, as far as it is ranked by the value the price is of.
local function follow_price(pace, value)
  pace.picks = pace.picks + 1
  pace.price = pace.price + math.max(PRICE_WEIGHT, 1 / pace.picks) * (value - pace.price)
end

local function fill(shards, now, pace, wanted, slot, gap_ms, options)
  local lease_ms, _, default_rest_ms, salt = unpack(options)
  local pages = {}
  while #pages < wanted do
    local found = gather(shards, now, BASE_CANDIDATES + 2 * (wanted - #pages))
    table.sort(found, worth_more)
    local rested, leased = {}, 0
    for _, c in ipairs(found) do
      if #pages >= wanted then break end
      local rest_ms = host_rest_ms(c.host, default_rest_ms)
      if not rested[c.host.hid] then
        local slot_ms = slot + #pages * gap_ms
        pages[#pages + 1] = lease(c, math.max(now, slot_ms), slot_ms, lease_ms, rest_ms, salt, now)
        if c.due > -1e15 and c.shard.ranked_by == pace.of then follow_price(pace, c.value) end
        rested[c.host.hid] = rest_ms > 0
        leased = leased + 1
      end
    end
    if leased == 0 then break end
    for _, shard in ipairs(shards) do  -- what was seen has changed: look again from the front
      shard.at, shard.read, shard.heads = 0, 0, {}
      if shard.touched then
        shard.best = tonumber(redis.call('ZRANGE', shard.prefix .. ':awake', 0, 0, 'WITHSCORES')[2])
      end
    end
  end
  return pages
end

-- A shard that was touched keeps the instant too, so that a step back is seen from there.
local function close_shards(shards, raw, offset)
  for _, shard in ipairs(shards) do
    if shard.leases > 0 then
      redis.call('HSET', shard.prefix .. ':meta', 'seq', string.format('%d', shard.seq))
      redis.call('HINCRBY', shard.prefix .. ':meta', 'leases', shard.leases)
    end
    if shard.touched then
      keep_clock(shard.prefix .. ':meta', raw, offset, true)
      seal(shard.prefix)
    end
  end
end

-- Why nothing could be leased though a slot was free, and when to ask again.
local function why_nothing(shards, now)
  local reason, wake = 'no-pages', math.huge
  for _, shard in ipairs(shards) do
    for _, name in ipairs({':timers', ':resting'}) do
      local first = tonumber(redis.call('ZRANGE', shard.prefix .. name, 0, 0, 'WITHSCORES')[2])
      if first and name == ':resting' then reason = 'politeness' end
      wake = math.min(wake, first or math.huge)
    end
  end
  return reason, wake < math.huge and math.max(1, wake - now) or 1000
end

-- The earlier answers to request ids that come again; what is left to serve.
local function open_requests(control, requests)
  local answers, wanted, twins = {}, 0, {}
  for at, request in ipairs(requests) do
    local id = request[1]
    local kept = id ~= '' and redis.call('GET', control .. ':request:' .. id)
    answers[at] = kept and cmsgpack.unpack(kept) or id ~= '' and twins[id] or {}
    request.open = not kept and not twins[id]
    if id ~= '' then twins[id] = answers[at] end  -- a retry may arrive beside its first try
    if request.open then wanted = wanted + request[2] end
  end
  return answers, wanted
end

-- Shares the coming slots out: each request's first slot must be free now, the rest of a batch may lie
-- ahead. Returns how many slots are granted if there are pages for all of them.
local function share_slots(requests, slot, gap_ms, now, lookahead_ms)
  local total = 0
  for _, request in ipairs(requests) do
    local first = slot + total * gap_ms
    request.share = 0
    if request.open and first <= now + GRACE_MS then
      local ahead = math.max(0, math.floor((now + lookahead_ms - first) / gap_ms))
      request.share = math.min(request[2], 1 + ahead)
      total = total + request.share
    end
  end
  return total
end

local function hand_out(control, requests, answers, pages)
  local given = 0
  for at, request in ipairs(requests) do
    while request.open and #answers[at] < request.share and given < #pages do
      given = given + 1
      answers[at][#answers[at] + 1] = pages[given]
    end
    if request.open and request[1] ~= '' and #answers[at] > 0 then
      redis.call('SET', control .. ':request:' .. request[1], cmsgpack.pack(answers[at]), 'PX', REPLAY_MS)
    end
  end
end

-- After a step back of the clock everybody goes on from the latest instant anybody had kept.
local function agree_on_clock(keys, now, raw)
  for at = 2, #keys do now = math.max(now, (clock(keys[at] .. ':meta', raw))) end
  for at = 1, #keys do keep_clock(at == 1 and keys[1] or keys[at] .. ':meta', raw, now - raw, true) end
  return now, now - raw
end

register('next', function(keys, args)
  local control = keys[1]
  local now, raw, offset, stale, stepped = clock(control, args[1])
  if stepped then now, offset = agree_on_clock(keys, now, raw) end
  local options, requests = cmsgpack.unpack(args[2]), cmsgpack.unpack(args[3])
  local answers, wanted = open_requests(control, requests)
  local stored = redis.call('HMGET', control, 'rate', 'slot', 'price', 'picks', 'granted', 'priced')
  local rate, slot = tonumber(stored[1]) or 0, tonumber(stored[2]) or now
  local pace = {price = tonumber(stored[3]) or 0, picks = tonumber(stored[4]) or 0, of = stored[6] or FIRST_VALUE}
  local gap_ms = rate > 0 and 1000 / rate or 0
  local reason, retry_ms = 'pace', slot - GRACE_MS - now
  if rate == 0 then reason, retry_ms = 'paused', 1000 end
  local pages = {}
  if wanted > 0 and rate > 0 and slot <= now + GRACE_MS then
    if slot < now then slot = slot + math.floor((now - slot) / gap_ms) * gap_ms end  -- slots nobody asked for are lost
    local count = share_slots(requests, slot, gap_ms, now, options[2])
    local shards = open_shards(keys, now)
    pages = fill(shards, now, pace, count, slot, gap_ms, options)
    close_shards(shards, raw, offset)
    retry_ms = slot + #pages * gap_ms - GRACE_MS - now
    if #pages < count then reason, retry_ms = why_nothing(shards, now) end
    if #pages > 0 then
      redis.call('HSET', control, 'slot', string.format('%.6f', slot + #pages * gap_ms), 'price',
        string.format('%.17g', pace.price), 'picks', pace.picks, 'granted',
        string.format('%d', (tonumber(stored[5]) or 0) + #pages))
    end
    hand_out(control, requests, answers, pages)
  end
  keep_clock(control, raw, offset, stale)
  if #pages == wanted then reason, retry_ms = 'leased', 0 end
  return {reason, string.format('%.3f', now), string.format('%.3f', math.max(0, retry_ms)), cmsgpack.pack(answers)}
end)
