-- next: leases the pages worth most now to the requests that wait in one API process, on one server.
-- Promise: a slot is granted once, slots are 1/bandwidth apart and never caught up; a leased page is out
-- of every sorted set until its outcome or expiry; a host is left alone for its rest; the same request id
-- within a minute gets the same leases. Nothing is spent when nothing is leased.
-- KEYS: the control hash.
-- ARGV: now_ms or '' for the server's clock;
--       packed '<ddddH': lease_ms, lookahead_ms, rest_ms (where a host has no delay of its own), hold_ms (that pages
--       may lie before they are handed out), salt (1..65535);
--       the shards to choose from (all of them), a space between: only in a cluster must keys be named as such, and
--       16 of them would take the server as long as reading the control hash;
--       the requests in the order of arrival, as `open_requests` (common_pace.lua) takes them.
-- Reply: 'leased', or why somebody got nothing ('pace', 'politeness', 'no-pages', 'paused'); microseconds until
--        asking again may help; how many pages were leased for requests (those of answers that come again were
--        before); the pages for those who may come, one after the other, packed as `lease` (common_lease.lua) does;
--        then so per request, '' for none.

local CANDIDATES = 64  -- pages looked at, besides one per page wanted

local AGREED_MS = 1000  -- how long shards that are not written to may keep an older instant
local agreed = {}  -- by control hash: when all last agreed on the clock

-- After a step back of the clock everybody goes on from the latest instant anybody had kept. Before one, none may be
-- far behind: whoever is asked first after it would see less of it than the others, or nothing.
local function agree_on_clock(control, prefixes, now, raw)
  for _, prefix in ipairs(prefixes) do now = math.max(now, (clock(prefix .. ':meta', raw))) end
  keep_clock(control, raw, now - raw, true)
  for _, prefix in ipairs(prefixes) do keep_clock(prefix .. ':meta', raw, now - raw, true) end
  return now, now - raw
end

-- The shards that stand in one text: always the same, so that it is taken apart once.
local shards_in = {}
local function split_shards(text)
  if not shards_in[text] then
    local prefixes = {}
    for prefix in text:gmatch('%S+') do prefixes[#prefixes + 1] = prefix end
    shards_in[text] = prefixes
  end
  return shards_in[text]
end

local function slots_of(pace, count)
  local slots = {}
  for at = 1, count do slots[at] = pace.slot + (at - 1) * pace.gap_ms end
  return slots
end

-- Gives each request its share of the pages, if there is one; a twin of an earlier request gets what that got. Returns
-- what to keep, and how many pages were given.
local function hand_out(asked, shares, pages)
  local given, answers, ids, twin_of, kept = 0, asked.answers, asked.ids, asked.twin_of, {}
  for at = 1, #answers do
    local count = shares[at] or 0
    if count > #pages - given then count = #pages - given end
    if count > 0 then
      answers[at] = count == 1 and pages[given + 1] or table.concat(pages, '', given + 1, given + count)
      if ids[at] then append(kept, ids[at], answers[at]) end
      given = given + count
    elseif asked.wanted[at] > 0 and asked.on[at] and ids[at] then
      append(kept, ids[at], NOTHING)
    end
    if twin_of[at] then answers[at] = answers[twin_of[at]] end
  end
  return kept, given
end

register('next', function(keys, args)
  local control, prefixes = keys[1], split_shards(args[3])
  local stored = read_control(control)
  local now, raw, offset, stale, stepped = clock_of(stored, args[1])
  local agreed_at = agreed[control]
  if stepped or not agreed_at or now < agreed_at or now >= agreed_at + AGREED_MS then
    now, offset = agree_on_clock(control, prefixes, now, raw)
    agreed[control] = now
  end
  local lease_ms, lookahead_ms, rest_ms, hold_ms, salt = fields_of('<ddddH', args[2])
  local asked, pace = open_requests(control, args, 4, now), pace_of(stored, now)
  local reason, retry_ms = pace.reason, pace.retry_ms
  local pages, shares, rested_at, spare = {}, {}, nil, ''
  if asked.total + asked.ahead > 0 and (pace.is_open or asked.goes_on and pace.gap_ms > 0) then
    local count, more
    shares, count, more = share_slots(asked, pace, now, lookahead_ms)
    local order = {slots = slots_of(pace, count + more), needed = count, lease_ms = lease_ms, rest_ms = rest_ms,
      hold_ms = hold_ms, salt = salt, candidates = CANDIDATES, least = 0, pace = pace, shift_ms = 0}
    pages, rested_at = fill(prefixes, now, raw, offset, order)
    pace.slot, pace.granted = pace.slot + #pages * pace.gap_ms, pace.granted + #pages
    retry_ms = pace.slot - GRACE_MS - now
    if #pages < count then reason, retry_ms = why_nothing(prefixes, now, rested_at) end
    if #pages > 0 then write_pace(control, pace) end
  end
  local kept, given = hand_out(asked, shares, pages)
  keep_answers(control, kept, now)
  if #pages > given then spare = table.concat(pages, '', given + 1) end
  keep_clock(control, raw, offset, stale)
  if given == asked.total then reason, retry_ms = 'leased', 0 end
  return {reason, max(0, retry_ms * 1000), given, spare, unpack(asked.answers)}
end)
