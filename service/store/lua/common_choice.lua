-- Shared by the functions that hand pages out, after common_index.lua: which pages of some shards are worth
-- most now. Defines only locals. Runs for every page handed out: lists instead of tables with names, and
-- comparisons instead of calls, where they are made that often.

local FIRST_VALUE = 'ncis/freshness'  -- what pages are ranked by before anybody chose
local PAGES_PER_HOST, BINS_PER_HOST = 16, 4  -- looked at, at most
local PAGES_IN_A_RUSH = 2  -- of a host that gives one page and then rests, where very many are handed out or due
local MANY_READ = 128  -- pages read by one look, from which on it is as in a rush: a look must not take long
local NEAR_HOSTS = 8  -- looked at, beyond those wanted, where too few pages are due
local MOST_PASSED = 256  -- hosts at rest that are passed over by one look
local HEADS, MOST_HEADS = 8, 64  -- hosts of a queue read at first, and at most at a time
local IN_A_ROW = 4  -- taken of one queue before the queues are compared again, where all are due
local NOTE_MS = 1000  -- how long what is remembered of a shard is believed

-- A candidate is a list of what it is worth (one number to compare pages by), its crawl value and due score, id,
-- record, the interval and credit it is ranked by (nil if it was never crawled), its host, its bin, that bin's sorted
-- set of due times, and the first of those as they were read.
local WORTH, VALUE, DUE, ID, RECORD, INTERVAL, CREDIT, HOST, BIN, DUES, PAGES = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11

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
  local size = min(max(HEADS, queue.read), MOST_HEADS)
  local heads = redis_call('ZRANGE', queue.key, queue.read, queue.read + size - 1, 'WITHSCORES')
  queue.heads, queue.raws, queue.at, queue.size, queue.read = heads, false, 1, size, queue.read + size
  return heads[2] and heads[2] + 0 or INFINITE  -- a sum is cheaper than tonumber
end

local function read_hosts(queue)
  local heads, hids = queue.heads, {}
  for at = 1, #heads, 2 do hids[(at + 1) / 2] = heads[at] end
  return redis_call('HMGET', queue.prefix .. ':hosts', unpack(hids))
end

-- Opens the two queues of every shard of a call, after what has come due there has happened. `fronts` has the scores
-- of their first hosts.
local function open_queues(prefixes, now)
  local queues, fronts, timers = {}, {}, min(floor(MAX_TIMERS / #prefixes), MAX_TIMERS_OF_ONE)
  for _, prefix in ipairs(prefixes) do
    local note = note_of(prefix, now)
    if not note.wake or note.wake <= now then
      run_timers(prefix, now, max(timers, 1))
      note.wake = wake_of(prefix)
    end
    for _, place in ipairs({'awake', 'turns'}) do
      local queue = {prefix = prefix, note = note, place = place, key = prefix .. ':' .. place, dues = prefix .. ':d:',
        records = prefix .. ':r:', read = 0, size = 0, at = 1, heads = false, raws = false}
      fronts[#fronts + 1] = read_heads(queue)
      queues[#fronts] = queue
    end
  end
  return queues, fronts
end

-- The queue whose next host stands first, and that host's score; none if all are closed.
local function first_queue(fronts)
  local first, score = nil, INFINITE
  for at = 1, #fronts do
    local front = fronts[at]
    if front < score then first, score = at, front end
  end
  return first, score
end

-- Goes on behind the next host of a queue; the score of the one after it.
local function step(queue)
  local at = queue.at + 2
  queue.at = at
  local following = queue.heads[at + 1]
  return following and following + 0 or at > 2 * queue.size and read_heads(queue) or INFINITE
end

-- What a page that was never crawled or is promoted is worth, in the order of their scores and above all others.
local function worth_first(due)
  if due >= PROMOTED then return 1e100 - (due - PROMOTED) * 1e85 end
  return 1e200 * exp(max(-200, min(200, (NEVER_CRAWLED - due) / 1e9)))
end

-- How many of a bin's pages are worth looking at: those that are due, and the first in any case. Their due scores
-- become numbers.
local function count_due(pages, rest_ms, now)
  local count = 0
  for at = 2, #pages, 2 do
    local due = pages[at] + 0
    -- The order of new pages is their worth: where only one can be leased, no other comes before the first.
    if count > 0 and (due > now or due <= NEW_PAGES and rest_ms > 0) then break end
    count, pages[at] = count + 1, due
  end
  return count
end

-- The records of a bin's first pages.
local function read_first(key, pages, count)
  if count == 1 then return {redis_call('HGET', key, pages[1])} end
  if count == 2 then return redis_call('HMGET', key, pages[1], pages[3]) end
  local ids = {}
  for at = 1, count do ids[at] = pages[2 * at - 1] end
  return redis_call('HMGET', key, unpack(ids))
end

-- Adds the candidates of a bin; of a host that gives one page and then rests, only a better one than `best`.
local function add_candidates(found, queue, host, bin, now, best)
  local hid, rest_ms = host.hid, host.rest_ms
  local dues = queue.dues .. hid .. ':' .. bin
  local pages = redis_call('ZRANGE', dues, 0, host.most - 1, 'WITHSCORES')
  local count = count_due(pages, rest_ms, now)
  if count == 0 then return best end
  host.has_more = #pages > 2 * count
  found.read = found.read + count
  local read = read_first(queue.records .. hid .. ':' .. bin, pages, count)
  for at = 1, #read do
    local record = read[at]
    if record then
      local id, due = pages[2 * at - 1], pages[2 * at]
      local value, interval_s, credit_s, worth
      if due > NEW_PAGES and due < 3e15 then
        value, interval_s, credit_s = local_value(record, (now - due) / 1000)
        worth = value
      else
        value, interval_s, credit_s = value_by_anchor(queue.prefix, hid, bin, id, record, now)
        worth = due > NEW_PAGES and value or worth_first(due)
      end
      if not best or rest_ms == 0 then
        best = {worth, value, due, id, record, interval_s, credit_s, host, bin, dues, pages}
        found[#found + 1] = best
      elseif worth > best[WORTH] then
        best[WORTH], best[VALUE], best[DUE], best[ID], best[RECORD] = worth, value, due, id, record
        best[INTERVAL], best[CREDIT] = interval_s, credit_s
        best[BIN], best[DUES], best[PAGES] = bin, dues, pages
      end
    end
  end
  return best
end

-- Adds the candidates of a host of several bins.
local function add_from_bins(found, queue, host, now)
  local bins = redis_call('ZRANGE', queue.prefix .. ':b:' .. host.hid, 0, BINS_PER_HOST - 1, 'WITHSCORES')
  local best
  for at = 1, #bins, 2 do
    if at == 1 or bins[at + 1] + 0 <= now then
      best = add_candidates(found, queue, host, bins[at], now, best)
    end
  end
end

-- Looks at the next host of a queue; if it rests, answers until when.
local function look_at(found, hosts, queue, now, default_rest_ms, in_a_rush)
  queue.raws = queue.raws or read_hosts(queue)
  local at = queue.at
  local hid, raw = queue.heads[at], queue.raws[(at + 1) / 2]
  if not raw then return nil end
  local rest_until, price, bins, rest_ms, gap_ms = fields_of('<I6dI4xxxxdd', raw)
  if rest_until > now then return rest_until end
  if rest_ms < 0 then rest_ms = default_rest_ms end
  if gap_ms > rest_ms then rest_ms = gap_ms end
  -- As far as the choice needs it; `raw` is what a lease writes back.
  local is_brief = rest_ms > 0 and (in_a_rush or found.read >= MANY_READ)
  local host = {hid = hid, raw = raw, queue = queue, rest_until = rest_until, price = price, bins = bins,
    rest_ms = rest_ms, place = queue.place, most = is_brief and PAGES_IN_A_RUSH or PAGES_PER_HOST}
  hosts[hid] = host
  if bins == 1 then
    add_candidates(found, queue, host, '0', now, nil)
  else
    add_from_bins(found, queue, host, now)
  end
end

-- Has the next host of a queue step aside until it has rested: hosts at rest pile up before pages that are not due yet,
-- as the others are taken from between them. `passed` has by shard where such hosts go.
local function step_aside(passed, queue, rests_until)
  local prefix, hid, note = queue.prefix, queue.heads[queue.at], queue.note
  passed[prefix] = passed[prefix] or {}
  move(passed[prefix], 'resting', rests_until, hid)
  move(passed[prefix], NOT.awake, hid)
  if note.wake and rests_until < note.wake then note.wake = rests_until end
end

-- A shortlist: the pages at or above the price in due order, as many as are wanted and some to spare, and the nearest
-- if too few are due, `near_spare` of them at any rate; best first. Also when the first host that was passed over will
-- have rested. The order of new pages, and of those not due yet, is kept exactly; of the others a queue gives some in a
-- row.
local function gather(prefixes, now, wanted, spare, near_spare, default_rest_ms, in_a_rush)
  local queues, fronts = open_queues(prefixes, now)
  local found, hosts, near, passed, passes, rested_at = {read = 0}, {}, 0, {}, 0, INFINITE
  local most = wanted + spare
  local first, score, left = nil, INFINITE, 0
  while #found < most do
    score, left = fronts[first], left - 1
    if left < 0 or score > now or score <= NEW_PAGES then
      first, score = first_queue(fronts)
      left = IN_A_ROW - 1
      if not first then break end
    end
    local queue, rests_until = queues[first], score
    if score > now and queue.place == 'turns' then  -- all its hosts rest still
      fronts[first] = INFINITE
    else
      local is_near = score > now
      if is_near and (#found >= max(wanted, 1) + near_spare and near + passes >= NEAR_HOSTS / 2
          or near >= NEAR_HOSTS + wanted + near_spare or passes >= MOST_PASSED) then break end
      rests_until = look_at(found, hosts, queue, now, default_rest_ms, in_a_rush)
      if is_near and rests_until then
        passes = passes + 1
        step_aside(passed, queue, rests_until)
      elseif is_near then
        near = near + 1
        local host = hosts[queue.heads[queue.at]]
        -- It gives one page a look, and its next may be worth more than what others have to spare.
        if host and host.rest_ms == 0 and (host.bins > 1 or host.has_more) then near_spare = 0 end
      end
      fronts[first] = step(queue)
    end
    if rests_until and rests_until < rested_at then rested_at = rests_until end
  end
  for prefix, moves in pairs(passed) do move_hosts(prefix, moves) end  -- not before: queues are read by place
  table.sort(found, function(one, other) return one[WORTH] > other[WORTH] end)
  found.at, found.first, found.hosts, found.near = now, 1, hosts, near + passes
  return found, rested_at
end
