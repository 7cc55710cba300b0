-- Shared by the functions that hand pages out, after common_index.lua: which pages of some shards are worth
-- most now, and their leases. Defines only locals.

local FIRST_VALUE = 'ncis/freshness'  -- what pages are ranked by before anybody chose
local NEW_PAGES = -1e15  -- due scores below are of pages never crawled or promoted, whose order is their worth
local BASE_CANDIDATES = 96  -- pages looked at per round, plus one per page wanted
local PAGES_PER_HOST, BINS_PER_HOST = 16, 4  -- looked at, at most
local PAGES_PER_RESTING_HOST = 6  -- of a host that gives one page and then rests
local NEAR_HOSTS = 8  -- looked at, beyond those wanted, where too few pages are due
local HEADS = 8  -- hosts read at a time
local HOST_PRICE_WEIGHT = 0.05  -- of one served value in what a host that has to rest is served at
local TOKEN_AT = HISTORY_AT + 6

-- What a call knows of a shard: counters, where it is in the awake hosts, and what its leases change.
local function read_shard(prefix)
  local meta = redis.call('HMGET', prefix .. ':meta', 'best', 'wake', 'seq', 'leases', 'ranked_by')
  local best = tonumber(meta[1]) or math.huge
  return {prefix = prefix, best = best, wake = tonumber(meta[2]) or math.huge, seq = tonumber(meta[3]) or 0,
    leases = tonumber(meta[4]) or 0, ranked_by = meta[5] or FIRST_VALUE, touched = false,
    due = best, heads = false, at = 1, read = 0, timers = false, awake = false, asleep = false, resting = false}
end

local function rewind(shard)
  shard.due, shard.heads, shard.at, shard.read, shard.timers = shard.best, false, 1, 0, false
end

local function open_shards(prefixes, now)
  local shards = {}
  for at, prefix in ipairs(prefixes) do
    local shard = read_shard(prefix)
    if shard.wake <= now then
      run_timers(prefix, now)
      seal(prefix)
      shard = read_shard(prefix)
      shard.touched = true
    end
    shards[at] = shard
  end
  return shards
end

-- What the choice needs of a host, and how long it rests after a lease.
local function load_choice(prefix, hid, default_rest_ms)
  local f = redis.call('HMGET', prefix .. ':h:' .. hid, 'name', 'bins', 'delay_ms', 'gap_ms', 'rest_until', 'price')
  local host = {hid = hid, name = f[1], bins = tonumber(f[2]), delay_ms = tonumber(f[3]),
    gap_ms = tonumber(f[4]) or 0, rest_until = tonumber(f[5]) or 0, price = tonumber(f[6]) or 0}
  host.rest_ms = host_rest_ms(host, default_rest_ms)
  return host
end

local function read_heads(shard)
  shard.heads = redis.call('ZRANGE', shard.prefix .. ':awake', shard.read, shard.read + HEADS - 1, 'WITHSCORES')
  shard.read, shard.at = shard.read + HEADS, 1
end

-- The awake host with the earliest due time over all shards that has not been looked at yet.
local function next_head(shards)
  local best, due = nil, math.huge
  for at = 1, #shards do
    local shard = shards[at]
    if shard.due < due then best, due = shard, shard.due end
  end
  if not best then return nil end
  if not best.heads then read_heads(best) end
  local hid = best.heads[best.at]
  best.at = best.at + 2
  if best.at > 2 * HEADS then read_heads(best) end
  best.due = tonumber(best.heads[best.at + 1]) or math.huge
  return best, hid, due
end

-- The first pages of a bin, [id, due, id, due, ...]: those that may be worth most, and one more.
local function first_pages(key, now, limit, rests)
  local pages = redis.call('ZRANGE', key, 0, 1, 'WITHSCORES')
  local second = tonumber(pages[4])
  if second and second <= now and not (rests and tonumber(pages[2]) <= NEW_PAGES) then
    return redis.call('ZRANGE', key, 0, limit - 1, 'WITHSCORES'), limit
  end
  return pages, 2
end

-- One number to compare pages by, also between shards: pages never crawled by importance, then promoted ones
-- by urgency, then the crawl value.
local function worth_of(due, value)
  if due > NEW_PAGES then return value end
  if due >= PROMOTED then return 1e100 - (due - PROMOTED) * 1e85 end
  return 1e200 * math.exp(math.max(-200, math.min(200, (NEVER_CRAWLED - due) / 1e9)))
end

local function add_candidates(found, shard, host, bin, now, rests)
  local limit = rests and PAGES_PER_RESTING_HOST or PAGES_PER_HOST
  local pages, most = first_pages(due_key(shard.prefix, host.hid, bin), now, limit, rests)
  local known = {pages = pages, whole = #pages < 2 * most}
  local records = record_key(shard.prefix, host.hid, bin)
  for at = 1, #pages, 2 do
    local id, due = pages[at], tonumber(pages[at + 1])
    if at > 1 and (due > now or rests and due <= NEW_PAGES) then break end
    local record = redis.call('HGET', records, id)
    local value = value_now(shard.prefix, host.hid, bin, id, record, due, now)
    found[#found + 1] = {shard = shard, host = host, bin = bin, id = id, due = due, record = record,
      value = value, worth = worth_of(due, value), known = known}
  end
end

local function add_host(found, shard, host, now, rests)
  if host.bins == 1 then return add_candidates(found, shard, host, '0', now, rests) end
  local bins = redis.call('ZRANGE', shard.prefix .. ':b:' .. host.hid, 0, BINS_PER_HOST - 1, 'WITHSCORES')
  for at = 1, #bins, 2 do
    if at == 1 or tonumber(bins[at + 1]) <= now then
      add_candidates(found, shard, host, bins[at], now, rests)
    end
  end
end

-- Candidates: the pages at or above the price in due order, and the nearest few if too few are due. Notes
-- when the first host that was passed over will have rested.
local function gather(shards, now, wanted, default_rest_ms)
  local found, near = {}, 0
  local rested_at = math.huge
  while #found < BASE_CANDIDATES + wanted do
    local shard, hid, due = next_head(shards)
    if not shard then break end
    if due > now then
      near = near + 1
      if near > NEAR_HOSTS + wanted or #found >= wanted and near > NEAR_HOSTS / 2 then break end
    end
    local host = load_choice(shard.prefix, hid, default_rest_ms)
    if host.rest_until > now then
      rested_at = math.min(rested_at, host.rest_until)
    else
      add_host(found, shard, host, now, host.rest_ms > 0)
    end
  end
  table.sort(found, function(a, b) return a.worth > b.worth end)
  return found, rested_at
end

-- When the host's best page is due, after a candidate has left.
local function due_after(c)
  if c.host.bins > 1 then
    index_bin(c.shard.prefix, c.host, c.bin)
    return host_due(c.shard.prefix, c.host)
  end
  c.known[c.id] = true
  local pages = c.known.pages
  for at = 1, #pages, 2 do
    if not c.known[pages[at]] then return tonumber(pages[at + 1]) end
  end
  return not c.known.whole and host_due(c.shard.prefix, c.host) or nil
end

local function append(list, score, member)
  list[#list + 1] = score
  list[#list + 1] = member
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
  return tonumber(redis.call('ZSCORE', anchor_key(c.shard.prefix, c.host.hid, c.bin), c.id))
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
  return {c.due > NEW_PAGES and 1 or 0, host.hid, tonumber(c.id), token, host.name, path, slot, expires_at, c.value, elapsed_ms,
    silent_rate, signals, crawled_at, etag, modified}
end

-- Writes what a round of leases changed in the indexes, a few commands per shard.
local function flush(shard)
  local prefix = shard.prefix
  redis.call('ZADD', prefix .. ':timers', unpack(shard.timers))
  if #shard.awake > 0 then redis.call('ZADD', prefix .. ':awake', unpack(shard.awake)) end
  if #shard.asleep > 0 then redis.call('ZREM', prefix .. ':awake', unpack(shard.asleep)) end
  if #shard.resting > 0 then redis.call('ZADD', prefix .. ':resting', unpack(shard.resting)) end
  shard.best = tonumber(redis.call('ZRANGE', prefix .. ':awake', 0, 0, 'WITHSCORES')[2]) or math.huge
end

-- Leases up to one page per slot, best first and none worth less than `least`, calling `served` for each.
-- Returns the pages, when a host that was passed over will have rested, and what the last look left over.
local function fill(shards, now, slots, options, least, served)
  local lease_ms, default_rest_ms, salt = options.lease_ms, options.rest_ms, options.salt
  local pages, left = {}, {}
  local rested_at
  repeat
    local before = #pages
    local rested, found = {}, nil
    left = {}
    found, rested_at = gather(shards, now, #slots - before, default_rest_ms)
    for _, c in ipairs(found) do
      if #pages < #slots and not rested[c.host.hid] and c.worth >= least then
        pages[#pages + 1] = lease(c, slots[#pages + 1], now, lease_ms, salt)
        served(c)
        rested[c.host.hid] = c.host.rest_ms > 0
      else
        left[#left + 1] = c
      end
    end
    for _, shard in ipairs(shards) do
      if shard.timers then flush(shard) end
      rewind(shard)
    end
  until #pages == #slots or #pages == before
  return pages, rested_at, left
end

-- A shard that was touched keeps the instant too, so that a step back is seen from there.
local function close_shard(shard, raw, offset)
  if not shard.touched then return end
  redis.call('HSET', shard.prefix .. ':meta', 'seq', shard.seq, 'leases', shard.leases,
    'best', shard.best < math.huge and shard.best or '',
    'wake', shard.wake < math.huge and shard.wake or '',
    'raw', string.format('%.3f', raw), 'offset', string.format('%.3f', offset))
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
