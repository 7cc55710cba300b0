-- Shared by the functions that hand pages out, after common_index.lua: which pages of some shards are worth
-- most now. Defines only locals.

local FIRST_VALUE = 'ncis/freshness'  -- what pages are ranked by before anybody chose
local PAGES_PER_HOST, BINS_PER_HOST = 16, 4  -- looked at, at most
local PAGES_PER_RESTING_HOST = 2  -- of a host that gives one page and then rests
local NEAR_HOSTS = 8  -- looked at, beyond those wanted, where too few pages are due
local HEADS = 8  -- hosts of a queue read at a time
local IN_A_ROW = 4  -- taken of one queue before the queues are compared again, where all are due
local NOTE_MS = 1000  -- how long what is remembered of a shard is believed

-- What is remembered of a shard; read again after a while, for shards move between servers.
local function note_of(prefix, now)
  local note = notes[prefix]
  if not note or now < note.at or now >= note.at + NOTE_MS then
    local stored = redis_call('HMGET', prefix .. ':meta', 'ranked_by', 'removed')
    note = {at = now, ranked_by = stored[1] or FIRST_VALUE, removed = tonumber(stored[2]) or 0, wake = nil, kept_at = 0}
    notes[prefix] = note
  end
  return note
end

-- The next hosts of a queue; the score of the first.
local function read_heads(queue)
  local heads = redis_call('ZRANGE', queue.key, queue.read, queue.read + HEADS - 1, 'WITHSCORES')
  queue.heads, queue.raws, queue.at, queue.read = heads, false, 1, queue.read + HEADS
  return heads[2] and heads[2] + 0 or math.huge  -- a sum is cheaper than tonumber
end

local function read_hosts(queue)
  local heads, hids = queue.heads, {}
  for at = 1, #heads, 2 do hids[#hids + 1] = heads[at] end
  return redis_call('HMGET', queue.prefix .. ':hosts', unpack(hids))
end

-- Opens the two queues of every shard of a call, after what has come due there has happened. `fronts` has the scores
-- of their first hosts.
local function open_queues(prefixes, now)
  local queues, fronts = {current = 1, left = 0}, {}
  for _, prefix in ipairs(prefixes) do
    local note = note_of(prefix, now)
    if not note.wake or note.wake <= now then
      run_timers(prefix, now)
      note.wake = wake_of(prefix)
    end
    for _, name in ipairs({'awake', 'turns'}) do
      local queue = {prefix = prefix, note = note, key = prefix .. ':' .. name, takes_turns = name == 'turns', read = 0,
        at = 1, heads = false, raws = false}
      fronts[#fronts + 1] = read_heads(queue)
      queues[#fronts] = queue
    end
  end
  return queues, fronts
end

-- The queue whose next host stands first. The order of new pages, and of those not due yet, is kept exactly.
local function first_queue(queues, fronts, now)
  local at, score = queues.current, fronts[queues.current]
  if queues.left > 0 and score <= now and score > NEW_PAGES then
    queues.left = queues.left - 1
    return at, score
  end
  at, score = nil, math.huge
  for other = 1, #fronts do
    if fronts[other] < score then at, score = other, fronts[other] end
  end
  queues.current, queues.left = at or 1, IN_A_ROW - 1
  return at, score
end

-- The next host to be looked at: its queue, id, score, and what there is of it. A queue whose hosts all rest still
-- is closed; then only the queue and when that ends.
local function next_head(queues, fronts, now)
  local first, score = first_queue(queues, fronts, now)
  if not first then return nil end
  local queue = queues[first]
  if queue.takes_turns and score > now then
    fronts[first] = math.huge
    return queue, nil, score
  end
  queue.raws = queue.raws or read_hosts(queue)
  local at = queue.at
  local hid, raw, following = queue.heads[at], queue.raws[(at + 1) / 2], queue.heads[at + 3]
  queue.at = at + 2
  fronts[first] = following and following + 0 or at + 2 > 2 * HEADS and read_heads(queue) or math.huge
  return queue, hid, score, raw
end

-- A host as far as the choice needs it; `raw` is what a lease writes back.
local function choice_of(queue, hid, raw, default_rest_ms)
  local rest_until, price, bins, delay_ms, gap_ms = fields_of('<I6dI4xxxxdd', raw)
  if delay_ms < 0 then delay_ms = default_rest_ms end
  return {hid = hid, raw = raw, rest_until = rest_until, price = price, bins = bins,
    rest_ms = max(delay_ms, gap_ms), place = queue.takes_turns and 'turns' or 'awake'}
end

-- One number to compare pages by, also between shards: pages never crawled by importance, then promoted ones
-- by urgency, then the crawl value.
local function worth_of(due, value)
  if due > NEW_PAGES then return value end
  if due >= PROMOTED then return 1e100 - (due - PROMOTED) * 1e85 end
  return 1e200 * exp(max(-200, min(200, (NEVER_CRAWLED - due) / 1e9)))
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

-- The records of a bin's first pages.
local function read_first(key, pages, count)
  if count == 1 then return redis_call('HMGET', key, pages[1]) end
  local ids = {}
  for at = 1, count do ids[at] = pages[2 * at - 1] end
  return redis_call('HMGET', key, unpack(ids))
end

-- How many pages of one bin of a host are read.
local function most_of(host) return host.rest_ms > 0 and PAGES_PER_RESTING_HOST or PAGES_PER_HOST end

-- Adds the candidates of a bin; of a host that gives one page and then rests, only a better one than `best`.
local function add_candidates(found, queue, host, bin, now, best)
  local prefix, place, rest_ms = queue.prefix, host.hid .. ':' .. bin, host.rest_ms
  local dues, records = prefix .. ':d:' .. place, prefix .. ':r:' .. place
  local pages = redis_call('ZRANGE', dues, 0, most_of(host) - 1, 'WITHSCORES')
  local count = count_due(pages, host, now)
  if count == 0 then return best end
  for at, record in ipairs(read_first(records, pages, count)) do
    if record then
      local id, due = pages[2 * at - 1], pages[2 * at]
      local value, interval_s, credit_s = value_now(prefix, place, id, record, due, now)
      local worth = worth_of(due, value)
      if not best or rest_ms == 0 then
        best = {queue = queue, host = host, bin = bin, dues = dues, records = records, pages = pages, id = id,
          record = record, due = due, value = value, worth = worth, interval_s = interval_s, credit_s = credit_s}
        found[#found + 1] = best
      elseif worth > best.worth then
        best.bin, best.dues, best.records, best.pages, best.id, best.record = bin, dues, records, pages, id, record
        best.due, best.value, best.worth, best.interval_s, best.credit_s = due, value, worth, interval_s, credit_s
      end
    end
  end
  return best
end

local function add_host(found, queue, host, now)
  if host.bins == 1 then
    add_candidates(found, queue, host, '0', now, nil)
    return
  end
  local bins = redis_call('ZRANGE', queue.prefix .. ':b:' .. host.hid, 0, BINS_PER_HOST - 1, 'WITHSCORES')
  local best
  for at = 1, #bins, 2 do
    if at == 1 or bins[at + 1] + 0 <= now then
      best = add_candidates(found, queue, host, bins[at], now, best)
    end
  end
end

local function by_worth(a, b) return a.worth > b.worth end

-- A shortlist: the pages at or above the price in due order, and the nearest few if too few are due; best first.
-- Also when the first host that was passed over will have rested.
local function gather(queues, fronts, now, wanted, order)
  local found, hosts, near, rested_at = {}, {}, 0, math.huge
  while #found < order.candidates + wanted do
    local queue, hid, score, raw = next_head(queues, fronts, now)
    if not queue then break end
    if hid and score > now then
      near = near + 1
      if near > NEAR_HOSTS + wanted or #found >= wanted and near > NEAR_HOSTS / 2 then break end
    end
    local host = raw and choice_of(queue, hid, raw, order.options.rest_ms)
    if not hid or host and host.rest_until > now then
      rested_at = min(rested_at, hid and host.rest_until or score)
    elseif host then
      add_host(found, queue, host, now)
      hosts[hid] = host
    end
  end
  table.sort(found, by_worth)
  found.at, found.first, found.hosts = now, 1, hosts
  return found, rested_at
end
