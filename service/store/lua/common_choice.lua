-- Shared by the functions that hand pages out, after common_index.lua: which pages of some shards are worth
-- most now. Defines only locals.

local FIRST_VALUE = 'ncis/freshness'  -- what pages are ranked by before anybody chose
local NEW_PAGES = -1e15  -- due scores below are of pages never crawled or promoted, whose order is their worth
local PAGES_PER_HOST, BINS_PER_HOST = 16, 4  -- looked at, at most
local PAGES_PER_RESTING_HOST = 2  -- of a host that gives one page and then rests
local NEAR_HOSTS = 8  -- looked at, beyond those wanted, where too few pages are due
local HEADS = 8  -- hosts read at a time
local NOTE_MS = 1000  -- how long what is remembered of a shard is believed

-- What is remembered of a shard; read again after a while, for shards move between servers.
local function note_of(prefix, now)
  local note = notes[prefix]
  if not note or now < note.at or now >= note.at + NOTE_MS then
    local stored = redis.call('HMGET', prefix .. ':meta', 'ranked_by', 'removed')
    note = {at = now, ranked_by = stored[1] or FIRST_VALUE, removed = tonumber(stored[2]) or 0, wake = nil, kept_at = 0}
    notes[prefix] = note
  end
  return note
end

-- The next hosts of a shard by their due times, and what there is of them.
local function read_heads(shard)
  local heads = redis.call('ZRANGE', shard.prefix .. ':awake', shard.read, shard.read + HEADS - 1, 'WITHSCORES')
  shard.heads, shard.hosts, shard.at, shard.read = heads, false, 1, shard.read + HEADS
  shard.due = heads[2] and heads[2] + 0 or math.huge  -- a sum is cheaper than tonumber
end

local function read_hosts(shard)
  local heads, hids = shard.heads, {}
  for at = 1, #heads, 2 do hids[#hids + 1] = heads[at] end
  shard.hosts = redis.call('HMGET', shard.prefix .. ':hosts', unpack(hids))
end

-- Opens every shard of a call at its first host, after what has come due there has happened.
local function open_shards(prefixes, now)
  local shards = {}
  for at, prefix in ipairs(prefixes) do
    local note = note_of(prefix, now)
    if not note.wake or note.wake <= now then
      run_timers(prefix, now)
      note.wake = wake_of(prefix)
    end
    local shard = {prefix = prefix, note = note, read = 0, at = 1, due = math.huge, heads = false, hosts = false}
    read_heads(shard)
    shards[at] = shard
  end
  return shards
end

-- The awake host with the earliest due time over all shards that has not been looked at yet: its shard, id, due
-- time, and what there is of it.
local function next_head(shards)
  local best, due = nil, math.huge
  for at = 1, #shards do
    local shard = shards[at]
    if shard.due < due then best, due = shard, shard.due end
  end
  if not best then return nil end
  if not best.hosts then read_hosts(best) end
  local at = best.at
  local hid, raw = best.heads[at], best.hosts[(at + 1) / 2]
  local following = best.heads[at + 3]
  best.at, best.due = at + 2, following and following + 0 or math.huge
  if at + 2 > 2 * HEADS then read_heads(best) end
  return best, hid, due, raw
end

-- A host as far as the choice needs it; `raw` is what a lease writes back.
local function choice_of(hid, raw, default_rest_ms)
  local rest_until, price, bins, delay_ms, gap_ms = struct.unpack('<I6dI4xxxxdd', raw)
  if delay_ms < 0 then delay_ms = default_rest_ms end
  return {hid = hid, raw = raw, rest_until = rest_until, price = price, bins = bins,
    rest_ms = math.max(delay_ms, gap_ms)}
end

-- One number to compare pages by, also between shards: pages never crawled by importance, then promoted ones
-- by urgency, then the crawl value.
local function worth_of(due, value)
  if due > NEW_PAGES then return value end
  if due >= PROMOTED then return 1e100 - (due - PROMOTED) * 1e85 end
  return 1e200 * math.exp(math.max(-200, math.min(200, (NEVER_CRAWLED - due) / 1e9)))
end

-- What one bin of a host has waiting: its pages by due time, up to a limit.
local function read_bin(shard, host, bin, limit)
  local pages = redis.call('ZRANGE', due_key(shard.prefix, host.hid, bin), 0, limit - 1, 'WITHSCORES')
  pages.whole = #pages < 2 * limit
  return pages
end

-- How many of a bin's pages are worth looking at: those that are due, and the first in any case.
local function count_due(pages, host, now)
  local count = 0
  for at = 2, #pages, 2 do
    local due = pages[at] + 0
    -- The order of new pages is their worth: where only one can be leased, no other comes before the first.
    if count > 0 and (due > now or due <= NEW_PAGES and host.rest_ms > 0) then break end
    count, pages[at] = count + 1, due
  end
  return count
end

-- Adds the candidates of a bin; of a host that gives one page and then rests, only a better one than `best`.
local function add_candidates(found, shard, host, bin, now, best)
  local pages = read_bin(shard, host, bin, host.rest_ms > 0 and PAGES_PER_RESTING_HOST or PAGES_PER_HOST)
  local count, ids = count_due(pages, host, now), {}
  if count == 0 then return best end
  for at = 1, count do ids[at] = pages[2 * at - 1] end
  local records = redis.call('HMGET', record_key(shard.prefix, host.hid, bin), unpack(ids))
  for at = 1, count do
    local record, due = records[at], pages[2 * at]
    if record then
      local value = value_now(shard.prefix, host.hid, bin, ids[at], record, due, now)
      local worth = worth_of(due, value)
      if not best or host.rest_ms == 0 then
        best = {prefix = shard.prefix, note = shard.note, host = host, bin = bin, id = ids[at], due = due,
          record = record, value = value, worth = worth, pages = pages}
        found[#found + 1] = best
      elseif worth > best.worth then
        best.bin, best.id, best.due, best.record = bin, ids[at], due, record
        best.value, best.worth, best.pages = value, worth, pages
      end
    end
  end
  return best
end

local function add_host(found, shard, host, now)
  if host.bins == 1 then
    add_candidates(found, shard, host, '0', now, nil)
    return
  end
  local bins = redis.call('ZRANGE', shard.prefix .. ':b:' .. host.hid, 0, BINS_PER_HOST - 1, 'WITHSCORES')
  local best
  for at = 1, #bins, 2 do
    if at == 1 or bins[at + 1] + 0 <= now then
      best = add_candidates(found, shard, host, bins[at], now, best)
    end
  end
end

local function by_worth(a, b) return a.worth > b.worth end

-- A shortlist: the pages at or above the price in due order, and the nearest few if too few are due; best first.
-- Also when the first host that was passed over will have rested.
local function gather(shards, now, wanted, order)
  local found, hosts, near, rested_at = {}, {}, 0, math.huge
  while #found < order.candidates + wanted do
    local shard, hid, due, raw = next_head(shards)
    if not shard then break end
    if due > now then
      near = near + 1
      if near > NEAR_HOSTS + wanted or #found >= wanted and near > NEAR_HOSTS / 2 then break end
    end
    local host = raw and choice_of(hid, raw, order.options.rest_ms)
    if host and host.rest_until > now then
      rested_at = math.min(rested_at, host.rest_until)
    elseif host then
      add_host(found, shard, host, now)
      hosts[hid] = host
    end
  end
  table.sort(found, by_worth)
  found.at, found.first, found.hosts = now, 1, hosts
  return found, rested_at
end
