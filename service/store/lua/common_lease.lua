-- Shared by the functions that hand pages out, after common_choice.lua: leases, and what they change. Defines
-- only locals.

local HOST_PRICE_WEIGHT = 0.05  -- of one served value in what a host that has to rest is served at
local TOKEN_AT = HISTORY_AT + 6
local SHORTLIST_MS = 100  -- how long what a look left over is chosen from: values hardly move meanwhile
local CLOCK_MS = 100  -- how often a shard that gives pages keeps the instant, so that a step back is seen there

-- When the best of the pages that were read of a candidate's bin is due, after it has left.
local function bin_due(c)
  local pages = c.pages
  pages[c.id] = true
  for at = 1, #pages, 2 do
    if not pages[pages[at]] then return pages[at + 1] + 0 end
  end
  if pages.whole then return nil end
  return tonumber(redis.call('ZRANGE', due_key(c.prefix, c.host.hid, c.bin), 0, 0, 'WITHSCORES')[2])
end

-- When the host's best page is due, after a candidate has left.
local function due_after(c)
  local due = bin_due(c)
  if c.host.bins == 1 then return due end
  local bins = c.prefix .. ':b:' .. c.host.hid
  if due then redis.call('ZADD', bins, due, c.bin) else redis.call('ZREM', bins, c.bin) end
  return host_due(c.prefix, c.host)
end

-- What the leases of a round change in a shard's indexes.
local function new_changes(note) return {note = note, leases = {}, hosts = {}, awake = {}, asleep = {}, resting = {}} end

-- The host rests from a lease on, and waits where its other pages say.
local function move_host(c, at_ms, changes)
  local host, due = c.host, due_after(c)
  if host.rest_ms > 0 then
    host.rest_until = math.min(math.floor(at_ms + host.rest_ms), LATEST)
    host.price = host.price > 0 and host.price + HOST_PRICE_WEIGHT * (c.value - host.price) or c.value
    host.raw = struct.pack('<I6d', host.rest_until, host.price) .. host.raw:sub(SERVED_SIZE + 1)
    append(changes.hosts, host.hid, host.raw)
  end
  if due and (host.rest_ms == 0 or due >= host.rest_until) then
    append(changes.awake, due, host.hid)
    return
  end
  changes.asleep[#changes.asleep + 1] = host.hid
  if due then
    append(changes.resting, host.rest_until, host.hid)
    changes.note.wake = changes.note.wake and math.min(changes.note.wake, host.rest_until)
  end
end

-- Since when the page ages: what its due time was computed from, or its anchor where it has none.
local function anchor_of(c, interval_s, credit_s)
  if credit_s < 0 and c.due > -8e14 and c.due < 2.8e15 then return c.due - interval_s * 1000 end
  return tonumber(redis.call('ZSCORE', anchor_key(c.prefix, c.host.hid, c.bin), c.id))
end

-- A token above all that the page ever had, also before it was removed: seconds of the clock or one more than the
-- last, then the salt (never 0, which marks a token that was taken back).
local function next_token(record, now, salt, note)
  local last = math.max(struct.unpack('<I6', record, TOKEN_AT), note.removed)
  return math.max(math.floor(last / 65536) + 1, math.floor(now / 1000)) * 65536 + salt
end

-- Leases a candidate; nil if it does not wait any more.
local function lease(c, slot, now, options, changes)
  local host, record, bin = c.host, c.record, c.bin
  if redis.call('ZREM', due_key(c.prefix, host.hid, bin), c.id) == 0 then return nil end
  local at_ms = math.max(now, slot)
  local token, expires_at = next_token(record, now, options.salt, changes.note), math.floor(at_ms + options.lease_ms)
  local flags = record:byte(1)
  redis.call('HSET', record_key(c.prefix, host.hid, bin), c.id, string.char(flags + LEASED)
    .. record:sub(2, TOKEN_AT - 1) .. struct.pack('<I6', token) .. record:sub(TOKEN_AT + 6))
  append(changes.leases, expires_at, host.hid .. ':' .. c.id)
  changes.note.wake = changes.note.wake and math.min(changes.note.wake, expires_at)
  move_host(c, at_ms, changes)
  local interval_s = struct.unpack('<f', record, RANKING_AT)
  local credit_s, _, silent_rate = struct.unpack('<fff', record, MODEL_AT - 4)
  local crawled_at, _, _, _, signals, _, _, modified = struct.unpack('<I6I6I4BHBc3I4', record, HISTORY_AT)
  local elapsed_ms = has(flags, CRAWLED) and now - anchor_of(c, interval_s, credit_s) or -1
  local etag, path = etag_and_path(record)
  return {c.due > NEW_PAGES and 1 or 0, host.hid, c.id + 0, token, name_of(host.raw), path, slot, expires_at,
    c.value, elapsed_ms, silent_rate, signals, crawled_at, etag, modified}
end

-- Writes what a round of leases changed in the indexes of a shard.
local function flush(prefix, changes, now, raw, offset)
  if #changes.leases == 0 then return end
  redis.call('ZADD', prefix .. ':leases', unpack(changes.leases))
  if #changes.hosts > 0 then redis.call('HSET', prefix .. ':hosts', unpack(changes.hosts)) end
  if #changes.awake > 0 then redis.call('ZADD', prefix .. ':awake', unpack(changes.awake)) end
  if #changes.asleep > 0 then redis.call('ZREM', prefix .. ':awake', unpack(changes.asleep)) end
  if #changes.resting > 0 then redis.call('ZADD', prefix .. ':resting', unpack(changes.resting)) end
  local note = changes.note
  if now < note.kept_at or now >= note.kept_at + CLOCK_MS then
    keep_clock(prefix .. ':meta', raw, offset, true)
    note.kept_at = now
  end
end

-- What will be changed in a shard; false if another release has written there since the shortlist was made.
local function open_changes(list, prefix, now)
  local meta = prefix .. ':meta'
  local stored = redis.call('HMGET', meta, 'library', 'since')
  take_over(meta, stored[1], now)
  local is_alone = stored[1] == VERSION and stored[2] + 0 < list.at
  return (is_alone or list.at == now) and new_changes(note_of(prefix, now))
end

-- Leases pages of a shortlist to the slots, best first and none worth less than asked for; the others stay on it.
local function serve(list, pages, now, raw, offset, order)
  local hosts, changed, wanted = list.hosts, {}, #order.slots
  local c = list[list.first]
  while c and #pages < wanted and c.worth >= order.least do
    local host = c.host
    if changed[c.prefix] == nil then changed[c.prefix] = open_changes(list, c.prefix, now) end
    if changed[c.prefix] and hosts[host.hid] then  -- else it was changed, or has given a page and rests
      local page = lease(c, order.slots[#pages + 1], now, order.options, changed[c.prefix])
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
    list, rested_at = gather(open_shards(prefixes, now), now, #order.slots - before, order)
    serve(list, pages, now, raw, offset, order)
    if #pages == before then break end
  end
  shortlists[prefixes[1]] = list
  return pages, rested_at, list
end

-- Why too little could be leased though a slot was free, and when to ask again.
local function why_nothing(prefixes, now, rested_at)
  local reason, wake = 'no-pages', rested_at
  if rested_at < math.huge then reason = 'politeness' end
  for _, prefix in ipairs(prefixes) do
    local note = note_of(prefix, now)
    note.wake = note.wake or wake_of(prefix)
    wake = math.min(wake, note.wake)
    if redis.call('EXISTS', prefix .. ':resting') == 1 then reason = 'politeness' end
  end
  return reason, wake < math.huge and math.max(1, wake - now) or 1000
end
