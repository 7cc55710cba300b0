-- Shared by the functions that hand pages out, after common_pace.lua: leases, and what they change. Defines
-- only locals.

local SHORTLIST_MS = 100  -- how long what a look left over is chosen from: values hardly move meanwhile
local LONGEST_MS = 1000  -- before asking again where there are no pages
local BUSY_LOOKS = 4  -- within that time, from which on each finds more pages than are wanted also where few are due
local MOST_NEAR = 32  -- pages leased ahead by a call where they are not due: each costs more than one that is
local CLOCK_MS = 100  -- how often a shard that gives pages keeps the instant, so that a step back is seen there

-- When the best of the pages that were read of a candidate's bin is due, after it has left.
local function bin_due(c)
  local pages, id, may_give_more = c[PAGES], c[ID], c[HOST].rest_ms == 0
  if may_give_more then pages[id] = true end
  for at = 1, #pages, 2 do
    local other = pages[at]
    if other ~= id and not pages[other] then return pages[at + 1] + 0 end
  end
  if #pages < 2 * c[HOST].most then return nil end
  return tonumber(redis_call('ZRANGE', c[DUES], 0, 0, 'WITHSCORES')[2])
end

-- When the host's best page is due, after a candidate has left.
local function due_after(c)
  local due, host = bin_due(c), c[HOST]
  if host.bins == 1 then return due end
  local prefix = host.queue.prefix
  local bins = prefix .. ':b:' .. host.hid
  if due then redis_call('ZADD', bins, due, c[BIN]) else redis_call('ZREM', bins, c[BIN]) end
  return host_due(prefix, host)
end

-- What the leases of a round change in a shard's indexes: {expiry, member, ...}, {member, token, ...}, {host id, host,
-- ...} and where hosts go.
local function new_changes(note) return {note = note, leases = {}, tokens = {}, hosts = {}, moves = {}} end

local host_price_after
do
  local HOST_PRICE_WEIGHT = 0.05  -- of one lease in the price of a host that has to rest
  local IDLE_MS = 1000  -- after a rest, beyond as much as that took: so long a host may wait for its turn that is held back

  -- The price of a host after a lease. It follows what is served where a page was due before the rest ended: politeness
  -- holds the host back. Where it was not the price is too high, and falls. What it was counts the less beside what is
  -- served now the longer the host stood idle after its rest: its next lease would be as late, if that was what its
  -- price brought about; and if crawlers paused, what is served now says more. New pages come first whatever they are
  -- worth.
  function host_price_after(c, at_ms)
    local host = c[HOST]
    local price, value, rest_ms = host.price, host.place == 'turns' and c[VALUE] or 0, host.rest_ms
    if c[DUE] <= NEW_PAGES then return price end
    if price <= 0 then return value end
    local idle_ms = at_ms - host.rest_until - rest_ms - IDLE_MS
    if idle_ms > 0 then price = value + (price - value) * rest_ms / (rest_ms + idle_ms) end
    return price + HOST_PRICE_WEIGHT * (value - price)
  end
end

-- From a lease on the host rests.
local function start_rest(c, at_ms, changes)
  local host = c[HOST]
  local rest_until, price = floor(at_ms + host.rest_ms), host_price_after(c, at_ms)
  if rest_until > LATEST then rest_until = LATEST end
  host.rest_until, host.price = rest_until, price
  host.raw = packed('<I6d', rest_until, price) .. host.raw:sub(SERVED_SIZE + 1)
  append(changes.hosts, host.hid, host.raw)
end

-- The host waits where its other pages say.
local function move_host(c, now, changes)
  local host, due, note = c[HOST], due_after(c), changes.note
  local was, place, score = host.place, nil, nil
  if due then place, score = place_of(host, due, now) end
  if place ~= was and host.rest_ms == 0 then  -- it may come back in this round, and moves add before they remove
    move_hosts(host.queue.prefix, changes.moves)
    changes.moves = {}
  end
  local moves = changes.moves
  if due then
    move(moves, place, score, host.hid)
    if place == 'resting' and note.wake and score < note.wake then note.wake = score end
    host.place = place
  end
  if place ~= was then move(moves, NOT[was], host.hid) end
end

-- How long the page has aged: since what its due time was computed from, or since its anchor where it has none.
local function elapsed_of(c, now)
  local interval_s, due = c[INTERVAL], c[DUE]
  if not interval_s then return -1 end
  if c[CREDIT] < 0 and due > -8e14 and due < 2.8e15 then return now - due + interval_s * 1000 end
  local host = c[HOST]
  return now - tonumber(redis_call('ZSCORE', anchor_key(host.queue.prefix, host.hid, c[BIN]), c[ID]))
end

-- A token above all that the page ever had, also before it was removed: seconds of the clock or one more than the
-- last, then the salt (never 0, which marks a token that was taken back).
local function next_token(record, now, salt, removed)
  local last, seconds = fields_of('<I6', record, TOKEN_AT), floor(now / 1000)
  if last < removed then last = removed end
  last = (last - last % 65536) / 65536 + 1
  return (last > seconds and last or seconds) * 65536 + salt
end

-- Leases a candidate; nil if it does not wait any more. The answer says what changed; the rest is in the page's
-- record, which stays as it is, and its host's, as it was.
local function lease(c, slot, now, order, changes)
  local host, record, note, id, value = c[HOST], c[RECORD], changes.note, c[ID], c[VALUE]
  if redis_call('ZREM', c[DUES], id) == 0 then return nil end
  local hid, at_ms = host.hid, slot + order.shift_ms  -- by the clock of the shard
  if at_ms < now then at_ms = now end
  at_ms = at_ms + order.hold_ms  -- when it is handed out at the latest
  local token, expires_at = next_token(record, now, order.salt, note.removed), floor(at_ms + order.lease_ms)
  local member = hid .. ':' .. id
  append(changes.leases, expires_at, member)
  append(changes.tokens, member, packed('<I6', token))
  if note.wake and expires_at < note.wake then note.wake = expires_at end
  if host.rest_ms > 0 then start_rest(c, at_ms, changes) end
  move_host(c, now, changes)
  return packed('<BI4dddddBI2I2', c[DUE] > NEW_PAGES and 1 or 0, id, token, slot, expires_at, value,
    elapsed_of(c, now), #hid, #host.raw, #record) .. hid .. host.raw .. record
end

-- Writes what a round of leases changed in the indexes of a shard.
local function flush(prefix, changes, now, raw, offset)
  if #changes.leases == 0 then return end
  redis_call('ZADD', prefix .. ':leases', unpack(changes.leases))
  redis_call('HSET', prefix .. ':tokens', unpack(changes.tokens))
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

-- For how many pages there are slots: for those who may come as well where there is plenty, for some of them where
-- a look found more than was wanted.
local function pages_for(order, list)
  if not list or list.is_plenty then return #order.slots end
  return list.has_spare and min(#order.slots, order.needed + MOST_NEAR) or order.needed
end

-- Leases pages of a shortlist to the slots, best first and none worth less than asked for; the others stay on it.
local function serve(list, pages, now, raw, offset, order)
  local hosts, changed, slots, pace = list.hosts, {}, order.slots, order.pace
  local first, given, wanted = list.first, #pages, pages_for(order, list)
  local c = list[first]
  while c and given < wanted and c[WORTH] >= order.least do
    local host = c[HOST]
    local prefix = host.queue.prefix
    local changes = changed[prefix]
    if changes == nil then
      changes = open_changes(list, prefix, now)
      changed[prefix] = changes
    end
    if changes and hosts[host.hid] then  -- else it was changed, or has given a page and rests
      local page = lease(c, slots[given + 1], now, order, changes)
      if host.rest_ms > 0 then hosts[host.hid] = nil end
      if page then
        given = given + 1
        pages[given] = page
        if pace and c[DUE] > NEW_PAGES then follow_price(pace, c[VALUE], changes.note.ranked_by) end
      end
    end
    first = first + 1
    c = list[first]
  end
  list.first = first
  for prefix, changes in pairs(changed) do
    if changes then flush(prefix, changes, now, raw, offset) end
  end
end

-- How busy a server is. Where looks follow each other while values hardly move (`is_on`) each costs less, and several
-- take turns: after one at all shards each is at some of them. So all are looked at in time, and a call changes few.
local function rush_of(prefixes, now)
  local rush = rushes[prefixes[1]]
  local age_ms = rush and now - rush.at or -1
  if age_ms < 0 or age_ms >= SHORTLIST_MS then
    local is_recent = age_ms >= 0 and age_ms < 2 * SHORTLIST_MS
    local looks = is_recent and rush.looks or 0
    -- What was found to spare makes looks fewer, so that it goes on being busy as long as there are several.
    local is_busy = looks >= BUSY_LOOKS or looks > 1 and rush.is_busy
    rush = {at = now, looks = 0, is_on = looks > 0, is_busy = is_busy, turns = min(looks, #prefixes), turn = 0}
    rushes[prefixes[1]] = rush
  end
  return rush
end

local function some_of(prefixes, rush)
  local some = {}
  for at = rush.turn, #prefixes, rush.turns do some[#some + 1] = prefixes[at] end
  return some
end

-- A new shortlist, and when a host that was passed over will have rested. It is a rush only while each look finds more
-- pages than wanted, all of them due and none new. Where looks are many and few pages are due each takes some of the
-- nearest as well: most of what a look costs does not depend on how many it finds.
local function look(prefixes, now, wanted, order, rush)
  local is_used_up = shortlists[prefixes[1]]  -- the last one; else it was forgotten, and the best may be anywhere
  local takes_turns = is_used_up and rush.turns > 1 and rush.turn > 0
  local some, spare, rest_ms = prefixes, order.candidates, order.rest_ms
  local near_spare = rush.is_busy and spare / 2 or 0
  if takes_turns then some, spare = some_of(prefixes, rush), spare / 2 end
  local list, rested_at = gather(some, now, wanted, spare, takes_turns and 0 or near_spare, rest_ms, rush.is_on)
  if is_used_up then rush.looks = rush.looks + 1 end
  list.is_plenty = #list >= spare + wanted and list.near == 0 and list[1][DUE] > NEW_PAGES
  if list.is_plenty then
    rush.turn = rush.turn % max(rush.turns, 1) + 1
  elseif rush.is_on then
    rush.is_on, rush.turns = false, 0
    list, rested_at = gather(prefixes, now, wanted, order.candidates, near_spare, rest_ms, false)
  end
  list.has_spare = list.is_plenty
    or rush.is_busy and #list >= near_spare + wanted and list[1][DUE] > NEW_PAGES
  return list, rested_at
end

-- Leases up to one page per slot of the order {slots, needed (how many of them at any rate), lease_ms, rest_ms, hold_ms,
-- salt, candidates, least (worth), shift_ms (of the shard's clock against the slots'), pace (whose price follows what is
-- served, if it does)}. Returns the pages, when a host that was passed over will have rested, and what is left of the
-- shortlist.
local function fill(prefixes, now, raw, offset, order)
  local pages, rested_at, list, rush = {}, INFINITE, shortlists[prefixes[1]], rush_of(prefixes, now)
  if #order.slots > 0 and list and now >= list.at and now < list.at + SHORTLIST_MS then
    serve(list, pages, now, raw, offset, order)
  end
  local only_looks = #order.slots == 0
  while only_looks or #pages < pages_for(order, list) do
    local before = #pages
    list, rested_at = look(prefixes, now, pages_for(order, list) - before, order, rush)
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
  if rested_at < INFINITE then reason = 'politeness' end
  for _, prefix in ipairs(prefixes) do
    local note = note_of(prefix, now)
    note.wake = note.wake or wake_of(prefix)
    local turn = next_turn(prefix, now)
    wake = min(wake, note.wake, turn or INFINITE)
    if turn or redis_call('EXISTS', prefix .. ':resting') == 1 then reason = 'politeness' end
  end
  local retry_ms = wake < INFINITE and max(1, wake - now) or LONGEST_MS
  if reason == 'no-pages' then retry_ms = min(retry_ms, LONGEST_MS) end  -- some may be put or given back sooner
  return reason, retry_ms
end
