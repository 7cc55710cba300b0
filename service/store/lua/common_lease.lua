-- Shared by the functions that hand pages out, after common_choice.lua: leases, and what they change. Defines
-- only locals.

local HOST_PRICE_WEIGHT = 0.05  -- of one served value in what a host that has to rest is served at
local TOKEN_AT = HISTORY_AT + 6
local SHORTLIST_MS = 100  -- how long what a look left over is chosen from: values hardly move meanwhile
local CLOCK_MS = 100  -- how often a shard that gives pages keeps the instant, so that a step back is seen there

-- When the best of the pages that were read of a candidate's bin is due, after it has left.
local function bin_due(c)
  local pages, host = c.pages, c.host
  local count = #pages
  if host.rest_ms == 0 then pages[c.id] = true end  -- it may give more of them
  for at = 1, count, 2 do
    local id = pages[at]
    if id ~= c.id and not pages[id] then return pages[at + 1] + 0 end
  end
  if count < 2 * most_of(host) then return nil end
  return tonumber(redis_call('ZRANGE', c.dues, 0, 0, 'WITHSCORES')[2])
end

-- When the host's best page is due, after a candidate has left.
local function due_after(c)
  local due = bin_due(c)
  if c.host.bins == 1 then return due end
  local prefix = c.queue.prefix
  local bins = prefix .. ':b:' .. c.host.hid
  if due then redis_call('ZADD', bins, due, c.bin) else redis_call('ZREM', bins, c.bin) end
  return host_due(prefix, c.host)
end

-- What the leases of a round change in a shard's indexes.
local function new_changes(note) return {note = note, leases = {}, hosts = {}, moves = new_moves()} end

-- From a lease on the host rests.
local function start_rest(c, at_ms, changes)
  local host = c.host
  host.rest_until = min(floor(at_ms + host.rest_ms), LATEST)
  host.price = host.price > 0 and host.price + HOST_PRICE_WEIGHT * (c.value - host.price) or c.value
  host.raw = packed('<I6d', host.rest_until, host.price) .. host.raw:sub(SERVED_SIZE + 1)
  append(changes.hosts, host.hid, host.raw)
end

-- The host waits where its other pages say.
local function move_host(c, now, changes)
  local host, due, note = c.host, due_after(c), changes.note
  local place, score
  if due then place, score = place_of(host, due, now) end
  if place then append(changes.moves[place], score, host.hid) end
  if place ~= host.place then append(changes.moves['not_' .. host.place], host.hid) end
  if place == 'resting' then note.wake = note.wake and min(note.wake, score) end
  host.place = place or 'awake'
end

-- How long the page has aged: since what its due time was computed from, or since its anchor where it has none.
local function elapsed_of(c, now)
  if not c.interval_s then return -1 end
  if c.credit_s < 0 and c.due > -8e14 and c.due < 2.8e15 then return now - c.due + c.interval_s * 1000 end
  return now - tonumber(redis_call('ZSCORE', anchor_key(c.queue.prefix, c.host.hid, c.bin), c.id))
end

-- A token above all that the page ever had, also before it was removed: seconds of the clock or one more than the
-- last, then the salt (never 0, which marks a token that was taken back).
local function next_token(record, now, salt, note)
  local last = max(fields_of('<I6', record, TOKEN_AT), note.removed)
  return max(floor(last / 65536) + 1, floor(now / 1000)) * 65536 + salt
end

-- Leases a candidate; nil if it does not wait any more. The answer says what changed; the rest is in the page's
-- record and its host's, as they were.
local function lease(c, slot, now, options, changes)
  local host, record, note = c.host, c.record, changes.note
  if redis_call('ZREM', c.dues, c.id) == 0 then return nil end
  local at_ms = max(now, slot)
  local token, expires_at = next_token(record, now, options.salt, note), floor(at_ms + options.lease_ms)
  redis_call('HSET', c.records, c.id, char(record:byte(1) + LEASED) .. record:sub(2, TOKEN_AT - 1)
    .. packed('<I6', token) .. record:sub(TOKEN_AT + 6))
  append(changes.leases, expires_at, host.hid .. ':' .. c.id)
  note.wake = note.wake and min(note.wake, expires_at)
  if host.rest_ms > 0 then start_rest(c, at_ms, changes) end
  move_host(c, now, changes)
  return packed('<BI4dddddBI2I2', c.due > NEW_PAGES and 1 or 0, c.id, token, slot, expires_at, c.value,
    elapsed_of(c, now), #host.hid, #host.raw, #record) .. host.hid .. host.raw .. record
end

-- Writes what a round of leases changed in the indexes of a shard.
local function flush(prefix, changes, now, raw, offset)
  if #changes.leases == 0 then return end
  redis_call('ZADD', prefix .. ':leases', unpack(changes.leases))
  if #changes.hosts > 0 then redis_call('HSET', prefix .. ':hosts', unpack(changes.hosts)) end
  move_hosts(prefix, changes.moves)
  local note = changes.note
  if now < note.kept_at or now >= note.kept_at + CLOCK_MS then
    keep_clock(prefix .. ':meta', raw, offset, true)
    note.kept_at = now
  end
end

-- What will be changed in a shard; false if another release has written there since the shortlist was made.
local function open_changes(list, prefix, now)
  local meta = prefix .. ':meta'
  local stored = redis_call('HMGET', meta, 'library', 'since')
  take_over(meta, stored[1], now)
  local is_alone = stored[1] == VERSION and stored[2] + 0 < list.at
  return (is_alone or list.at == now) and new_changes(note_of(prefix, now))
end

-- Leases pages of a shortlist to the slots, best first and none worth less than asked for; the others stay on it.
local function serve(list, pages, now, raw, offset, order)
  local hosts, changed, wanted = list.hosts, {}, #order.slots
  local c = list[list.first]
  while c and #pages < wanted and c.worth >= order.least do
    local host, prefix = c.host, c.queue.prefix
    local changes = changed[prefix]
    if changes == nil then
      changes = open_changes(list, prefix, now)
      changed[prefix] = changes
    end
    if changes and hosts[host.hid] then  -- else it was changed, or has given a page and rests
      local page = lease(c, order.slots[#pages + 1], now, order.options, changes)
      if host.rest_ms > 0 then hosts[host.hid] = nil end
      if page then
        pages[#pages + 1] = page
        order.served(c)
      end
    end
    list.first = list.first + 1
    c = list[list.first]
  end
  for prefix, changes in pairs(changed) do
    if changes then flush(prefix, changes, now, raw, offset) end
  end
end

-- Leases up to one page per slot of the order {slots, options, candidates, least (worth), served (called for
-- each)}. Returns the pages, when a host that was passed over will have rested, and what is left of the shortlist.
local function fill(prefixes, now, raw, offset, order)
  local pages, rested_at, list = {}, math.huge, shortlists[prefixes[1]]
  if #order.slots > 0 and list and now >= list.at and now < list.at + SHORTLIST_MS then
    serve(list, pages, now, raw, offset, order)
  end
  while #pages < #order.slots or #order.slots == 0 do
    local before = #pages
    local queues, fronts = open_queues(prefixes, now)
    list, rested_at = gather(queues, fronts, now, #order.slots - before, order)
    serve(list, pages, now, raw, offset, order)
    if #pages == before then break end
  end
  shortlists[prefixes[1]] = list
  return pages, rested_at, list
end

-- When the next of the hosts that take turns will have rested.
local function next_turn(prefix, now)
  local after = string.format('(%.3f', now)
  return tonumber(redis_call('ZRANGEBYSCORE', prefix .. ':turns', after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
end

-- Why too little could be leased though a slot was free, and when to ask again.
local function why_nothing(prefixes, now, rested_at)
  local reason, wake = 'no-pages', rested_at
  if rested_at < math.huge then reason = 'politeness' end
  for _, prefix in ipairs(prefixes) do
    local note = note_of(prefix, now)
    note.wake = note.wake or wake_of(prefix)
    local turn = next_turn(prefix, now)
    wake = min(wake, note.wake, turn or math.huge)
    if turn or redis_call('EXISTS', prefix .. ':resting') == 1 then reason = 'politeness' end
  end
  return reason, wake < math.huge and max(1, wake - now) or 1000
end
