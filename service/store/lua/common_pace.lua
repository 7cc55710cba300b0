-- Shared by the functions that keep the pace, after common_answers.lua: slots and the price, in the control hash, and
-- requests. Defines only locals.

local PRICE_WEIGHT = 0.01  -- of one served value in the price: slower lags after a step, faster is noisy
local GRACE_MS = 10  -- a slot this near is as good as free; `not_before` says when it starts

-- What the control hash holds of clock and pace, for clock_of and pace_of.
local function read_control(control)
  return redis.call('HMGET', control, 'raw', 'offset', 'rate', 'slot', 'price', 'picks', 'granted', 'priced')
end

-- The pace at this moment; `reason` and `retry_ms` say why nobody may be served, if so.
local function pace_of(stored, now)
  local rate = tonumber(stored[3]) or 0
  local stored_slot = tonumber(stored[4]) or now
  local pace = {gap_ms = rate > 0 and 1000 / rate or 0, slot = stored_slot, stored_slot = stored_slot,
    price = tonumber(stored[5]) or 0, picks = tonumber(stored[6]) or 0, granted = tonumber(stored[7]) or 0,
    of = stored[8] or FIRST_VALUE}
  pace.reason, pace.retry_ms = 'pace', pace.slot - GRACE_MS - now
  if rate == 0 then pace.reason, pace.retry_ms = 'paused', 1000 end
  pace.is_open = rate > 0 and pace.slot <= now + GRACE_MS
  if pace.is_open and pace.slot < now then  -- slots nobody asked for are lost
    pace.slot = pace.slot + math.floor((now - pace.slot) / pace.gap_ms) * pace.gap_ms
  end
  return pace
end

-- Numbers as they are: the server writes them out cheaper than a format does, and exactly.
local function write_pace(control, pace)
  redis_call('HSET', control, 'slot', pace.slot, 'price', pace.price, 'picks', pace.picks, 'granted', pace.granted)
end

-- The price follows what is served, as far as that is ranked by the value the price is of.
local function follow_price(pace, value, ranked_by)
  if ranked_by ~= pace.of then return end
  pace.picks = pace.picks + 1
  pace.price = pace.price + math.max(PRICE_WEIGHT, 1 / pace.picks) * (value - pace.price)
end

-- So many pages were handed out elsewhere; the price follows what they were worth, msgpack {which value it is =
-- [value, ...]}.
local function count_served(pace, count, served)
  pace.granted = pace.granted + count
  for ranked_by, values in pairs(cmsgpack.unpack(served)) do
    for _, value in ipairs(values) do follow_price(pace, value, ranked_by) end
  end
end

-- What becomes of the requests in `args` from a place on: two bytes each, how many pages, and `GOES_ON` more if it
-- goes on with a batch; at their end perhaps how many pages for those who may come, and `AHEAD` more; then, if any has
-- one, the id of each or ''. Lists by request: pages wanted (0 if there is nothing to serve), whether it goes on (`on`),
-- the answers to ids that come again, packed as they were given (`told`), and of which it is a twin. Also how much is
-- left to serve (`total`), whether some of it goes on, and the pages for those who may come (`ahead`).
local GOES_ON, AHEAD = 32768, 16384
local function open_requests(control, args, from, now)
  local counts = args[from]
  local asked = {wanted = {}, on = {}, answers = {}, ids = {}, twin_of = {}, total = 0, goes_on = false, ahead = 0}
  local has_ids, seen, size = #args > from, {}, #counts / 2
  local answers = has_ids and kept_answers(control, {unpack(args, from + 1)}, now)
  local last = size > 0 and fields_of('<H', counts, 2 * size - 1) or 0
  if last >= AHEAD and last < GOES_ON then size, asked.ahead = size - 1, last - AHEAD end
  for at = 1, size do
    local low, high = counts:byte(2 * at - 1, 2 * at)
    local wanted, goes_on, kept = low + 256 * high, high >= GOES_ON / 256, nil
    if goes_on then wanted = wanted - GOES_ON end
    local id = has_ids and args[from + at] or ''
    if id ~= '' then
      kept = answers[at]
      asked.ids[at], asked.twin_of[at] = id, seen[id]  -- a retry may arrive beside its first try
      if kept or seen[id] then wanted = 0 else seen[id] = at end
    end
    asked.wanted[at], asked.on[at], asked.answers[at] = wanted, goes_on, told(kept)
    if wanted > 0 then asked.total, asked.goes_on = asked.total + wanted, asked.goes_on or goes_on end
  end
  return asked
end

-- Shares the coming slots out: a request's first slot must be free now, the rest of a batch may lie ahead, and so
-- may all of one that goes on. How many each gets, and all together, if there are pages for all of them; then how many
-- of the free slots that are left those get who may come.
local function share_slots(asked, pace, now, lookahead_ms)
  local total, shares = 0, {}
  local slot, gap_ms, free, last = pace.slot, pace.gap_ms, now + GRACE_MS, now + lookahead_ms
  for at = 1, #asked.wanted do
    local wanted, share = asked.wanted[at], 0
    if wanted > 0 then
      local first = slot + total * gap_ms
      local ahead = floor((last - first) / gap_ms)
      if first <= free or asked.on[at] and ahead >= 0 then
        share = 1 + (ahead > 0 and ahead or 0)
        if share > wanted then share = wanted end
      end
    end
    shares[at], total = share, total + share
  end
  local left = floor((free - slot) / gap_ms) + 1 - total
  return shares, total, max(0, min(asked.ahead, left))
end
