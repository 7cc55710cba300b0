-- Shared by the functions that hand pages out, after common_index.lua: which pages of some shards are worth
-- most now. Defines only locals.

local FIRST_VALUE = 'ncis/freshness'  -- what pages are ranked by before anybody chose
local NEW_PAGES = -1e15  -- due scores below are of pages never crawled or promoted, whose order is their worth
local PAGES_PER_HOST, BINS_PER_HOST = 16, 4  -- looked at, at most
local PAGES_PER_RESTING_HOST = 4  -- of a host that gives one page and then rests
local NEAR_HOSTS = 8  -- looked at, beyond those wanted, where too few pages are due
local HEADS = 8  -- hosts read at a time

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

-- Opens every shard of a call, and lets happen what has come due there.
local function open_shards(prefixes, now)
  local shards = {}
  for at, prefix in ipairs(prefixes) do
    local shard = read_shard(prefix)
    if shard.wake <= now then
      shard.leases = shard.leases - run_timers(prefix, now)
      shard.best = first_score(prefix .. ':awake')
      shard.due, shard.wake, shard.touched = shard.best, wake_of(prefix), true
    end
    shards[at], shards[prefix] = shard, shard
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

-- One number to compare pages by, also between shards: pages never crawled by importance, then promoted ones
-- by urgency, then the crawl value.
local function worth_of(due, value)
  if due > NEW_PAGES then return value end
  if due >= PROMOTED then return 1e100 - (due - PROMOTED) * 1e85 end
  return 1e200 * math.exp(math.max(-200, math.min(200, (NEVER_CRAWLED - due) / 1e9)))
end

local function add_candidates(found, shard, host, bin, now, limit)
  local pages = redis.call('ZRANGE', due_key(shard.prefix, host.hid, bin), 0, limit - 1, 'WITHSCORES')
  local known, ids, dues = {pages = pages, whole = #pages < 2 * limit}, {}, {}
  for at = 1, #pages, 2 do
    local due = tonumber(pages[at + 1])
    -- The order of new pages is their worth: where only one can be leased, no other comes before the first.
    if at > 1 and (due > now or due <= NEW_PAGES and host.rest_ms > 0) then break end
    ids[#ids + 1], dues[#dues + 1] = pages[at], due
  end
  if #ids == 0 then return end
  local records = redis.call('HMGET', record_key(shard.prefix, host.hid, bin), unpack(ids))
  for at, record in ipairs(records) do
    if record then
      local due = dues[at]
      local value = value_now(shard.prefix, host.hid, bin, ids[at], record, due, now)
      found[#found + 1] = {shard = shard, prefix = shard.prefix, host = host, bin = bin, id = ids[at], due = due,
        record = record, value = value, worth = worth_of(due, value), known = known}
    end
  end
end

local function add_host(found, shard, host, now)
  local limit = host.rest_ms > 0 and PAGES_PER_RESTING_HOST or PAGES_PER_HOST
  if host.bins == 1 then return add_candidates(found, shard, host, '0', now, limit) end
  local bins = redis.call('ZRANGE', shard.prefix .. ':b:' .. host.hid, 0, BINS_PER_HOST - 1, 'WITHSCORES')
  for at = 1, #bins, 2 do
    if at == 1 or tonumber(bins[at + 1]) <= now then
      add_candidates(found, shard, host, bins[at], now, limit)
    end
  end
end

-- A host that gives one page and then rests has one candidate: its best.
local function keep_best(found, first)
  for at = first + 1, #found do
    if found[at].worth > found[first].worth then found[first] = found[at] end
    found[at] = nil
  end
end

-- Candidates: the pages at or above the price in due order, and the nearest few if too few are due. Notes
-- when the first host that was passed over will have rested.
local function gather(shards, now, wanted, order)
  local found, near = {}, 0
  local rested_at = math.huge
  while #found < order.candidates + wanted do
    local shard, hid, due = next_head(shards)
    if not shard then break end
    if due > now then
      near = near + 1
      if near > NEAR_HOSTS + wanted or #found >= wanted and near > NEAR_HOSTS / 2 then break end
    end
    local host = load_choice(shard.prefix, hid, order.options.rest_ms)
    if host.rest_until > now then
      rested_at = math.min(rested_at, host.rest_until)
    else
      local first = #found + 1
      add_host(found, shard, host, now)
      if host.rest_ms > 0 then keep_best(found, first) end
    end
  end
  table.sort(found, function(a, b) return a.worth > b.worth end)
  return found, rested_at
end
