-- Shared by the functions that hand pages out, after common_choice.lua: leases, and what they change. Defines
-- only locals.

local HOST_PRICE_WEIGHT = 0.05  -- of one served value in what a host that has to rest is served at
local TOKEN_AT = HISTORY_AT + 6
local SHORTLIST_MS = 50  -- how long what a look left over is chosen from: values hardly move meanwhile

-- When the host's best page is due, after a candidate has left.
local function due_after(c)
  if c.host.bins > 1 then index_bin(c.prefix, c.host, c.bin) end
  if c.host.bins > 1 or not c.known then return host_due(c.prefix, c.host) end
  c.known[c.id] = true
  local pages = c.known.pages
  for at = 1, #pages, 2 do
    if not c.known[pages[at]] then return tonumber(pages[at + 1]) end
  end
  return not c.known.whole and host_due(c.prefix, c.host) or nil
end

-- The host rests from a lease on, and waits where its other pages say; written with the rest of the round.
local function keep_host(c, at_ms)
  local shard, host = c.shard, c.host
  local due = due_after(c)
  if host.rest_ms > 0 then
    host.rest_until = math.floor(at_ms + host.rest_ms)
    host.price = host.price > 0 and host.price + HOST_PRICE_WEIGHT * (c.value - host.price) or c.value
    redis.call('HSET', shard.prefix .. ':h:' .. host.hid, 'rest_until', host.rest_until,
      'price', string.format('%.9g', host.price))
  end
  if due and (host.rest_ms == 0 or due >= host.rest_until) then
    append(shard.awake, due, host.hid)
    return
  end
  shard.asleep[#shard.asleep + 1] = host.hid
  if due then
    append(shard.resting, host.rest_until, host.hid)
    shard.wake = math.min(shard.wake, host.rest_until)
  end
end

-- Since when the page ages: what its due time was computed from, or its anchor where it has none.
local function anchor_of(c, interval_s, credit_s)
  if credit_s < 0 and c.due > -8e14 and c.due < 2.8e15 then return c.due - interval_s * 1000 end
  return tonumber(redis.call('ZSCORE', anchor_key(c.prefix, c.host.hid, c.bin), c.id))
end

local function lease(c, slot, now, lease_ms, salt)
  local shard, host, record = c.shard, c.host, c.record
  local at_ms = math.max(now, slot)
  shard.seq, shard.leases, shard.touched = shard.seq + 1, shard.leases + 1, true
  local token = (shard.seq % 4294967296) * 65536 + salt
  local expires_at = math.floor(at_ms + lease_ms)
  redis.call('HSET', record_key(shard.prefix, host.hid, c.bin), c.id, string.char(record:byte(1) + LEASED)
    .. record:sub(2, TOKEN_AT - 1) .. struct.pack('<I6', token) .. record:sub(TOKEN_AT + 6))
  redis.call('ZREM', due_key(shard.prefix, host.hid, c.bin), c.id)
  if not shard.timers then shard.timers, shard.awake, shard.asleep, shard.resting = {}, {}, {}, {} end
  append(shard.timers, expires_at, 'l:' .. host.hid .. ':' .. c.id)
  shard.wake = math.min(shard.wake, expires_at)
  keep_host(c, at_ms)
  local interval_s = struct.unpack('<f', record, RANKING_AT)
  local credit_s, _, silent_rate = struct.unpack('<fff', record, MODEL_AT - 4)
  local crawled_at, _, _, _, signals, _, _, modified = struct.unpack('<I6I6I4BHBc8I4', record, HISTORY_AT)
  local elapsed_ms = -1
  if has(record:byte(1), CRAWLED) then elapsed_ms = now - anchor_of(c, interval_s, credit_s) end
  local _, etag, path = unpack_tail(record)
  return {c.due > NEW_PAGES and 1 or 0, host.hid, tonumber(c.id), token, host.name, path, slot, expires_at,
    c.value, elapsed_ms, silent_rate, signals, crawled_at, etag, modified}
end

-- Writes what a round of leases changed in the indexes, a few commands per shard.
local function flush(shard)
  local prefix = shard.prefix
  redis.call('ZADD', prefix .. ':timers', unpack(shard.timers))
  if #shard.awake > 0 then redis.call('ZADD', prefix .. ':awake', unpack(shard.awake)) end
  if #shard.asleep > 0 then redis.call('ZREM', prefix .. ':awake', unpack(shard.asleep)) end
  if #shard.resting > 0 then redis.call('ZADD', prefix .. ':resting', unpack(shard.resting)) end
  shard.best = first_score(prefix .. ':awake')
end

-- A shard that was touched keeps the instant too, so that a step back is seen from there.
local function close_shard(shard, raw, offset)
  if not shard.touched then return end
  redis.call('HSET', shard.prefix .. ':meta', 'seq', shard.seq, 'leases', shard.leases,
    'best', shard.best < math.huge and shard.best or '',
    'wake', shard.wake < math.huge and shard.wake or '',
    'raw', string.format('%.3f', raw), 'offset', string.format('%.3f', offset))
end

-- Looks again at a candidate of an earlier call: whether it still waits, and its host may be asked.
local function is_still_there(c, shards, now, default_rest_ms)
  c.host = load_choice(c.prefix, c.host.hid, default_rest_ms)
  if not c.host.name or c.host.rest_until > now then return false end
  c.record = redis.call('HGET', record_key(c.prefix, c.host.hid, c.bin), c.id)
  if not c.record or c.record == '' or c.record:byte(1) % 8 > 0 then return false end
  if not shards[c.prefix] then
    shards[c.prefix] = read_shard(c.prefix)
    shards[#shards + 1] = shards[c.prefix]
  end
  c.shard, c.known = shards[c.prefix], nil
  return true
end

-- Leases candidates to the slots, best first and none worth less than asked for; returns those left over.
local function serve(found, pages, shards, now, order, is_fresh)
  local rested, left, options = {}, {}, order.options
  for _, c in ipairs(found) do
    local is_open = not rested[c.host.hid]  -- else its host has given a page, and rests
    if is_open and (#pages == #order.slots or c.worth < order.least) then
      left[#left + 1] = c
    elseif is_open and (is_fresh or is_still_there(c, shards, now, options.rest_ms)) then
      pages[#pages + 1] = lease(c, order.slots[#pages + 1], now, options.lease_ms, options.salt)
      order.served(c)
      rested[c.host.hid] = c.host.rest_ms > 0
    end
  end
  for _, shard in ipairs(shards) do
    if shard.timers then flush(shard) end
    rewind(shard)
  end
  return left
end

-- Leases up to one page per slot of the order {slots, options, candidates, least (worth), served (called for
-- each)}, and keeps the shards' counters. Returns the pages, the shards if all were looked at, when a host that
-- was passed over will have rested, and the candidates left over.
local function fill(prefixes, now, raw, offset, order)
  local pages, shards, rested_at = {}, {}, math.huge
  local kept = shortlists[prefixes[1]]
  local left = kept and now >= kept.at and now < kept.at + SHORTLIST_MS and kept.left or {}
  local at, is_whole = kept and kept.at, false
  if #order.slots > 0 and #left >= #order.slots then
    left = serve(left, pages, shards, now, order, false)
    for _, shard in ipairs(shards) do close_shard(shard, raw, offset) end
  end
  while #pages < #order.slots or #order.slots == 0 do
    local before, found = #pages, nil
    if not is_whole then shards, is_whole = open_shards(prefixes, now), true end
    found, rested_at = gather(shards, now, #order.slots - before, order)
    left, at = serve(found, pages, shards, now, order, true), now
    if #pages == before then break end
  end
  if is_whole then
    for _, shard in ipairs(shards) do close_shard(shard, raw, offset) end
  end
  shortlists[prefixes[1]] = {at = at, left = left}
  return pages, shards, rested_at, left
end

-- Why too little could be leased though a slot was free, and when to ask again.
local function why_nothing(shards, now, rested_at)
  local reason, wake = 'no-pages', rested_at
  if rested_at < math.huge then reason = 'politeness' end
  for _, shard in ipairs(shards) do
    wake = math.min(wake, shard.wake)
    if redis.call('EXISTS', shard.prefix .. ':resting') == 1 then reason = 'politeness' end
  end
  return reason, wake < math.huge and math.max(1, wake - now) or 1000
end
