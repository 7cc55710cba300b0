-- Shared by the functions that keep the pace, after common_choice.lua: slots, the price, and answers kept for
-- retries, all in the control hash and beside it. Defines only locals.

local PRICE_WEIGHT = 0.01  -- of one served value in the price: slower lags after a step, faster is noisy
local REPLAY_MS = 60000
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

local function write_pace(control, pace)
  redis.call('HSET', control, 'slot', string.format('%.6f', pace.slot), 'price',
    string.format('%.17g', pace.price), 'picks', pace.picks, 'granted', string.format('%d', pace.granted))
end

-- The price follows what is served, as far as that is ranked by the value the price is of.
local function follow_price(pace, value, ranked_by)
  if ranked_by ~= pace.of then return end
  pace.picks = pace.picks + 1
  pace.price = pace.price + math.max(PRICE_WEIGHT, 1 / pace.picks) * (value - pace.price)
end

-- What becomes of requests [[id or '', n, whether it goes on with a batch], ...]: the answers to ids that come again,
-- packed as they were given ('' else), by request; which are `open`, and of which a twin is the first; how much is
-- left to serve (`wanted`), and whether some of it goes on with a batch.
local function open_requests(control, requests)
  local asked, seen = {answers = {}, open = {}, twin_of = {}, shares = {}, wanted = 0, goes_on = false}, {}
  for at, request in ipairs(requests) do
    local id, kept = request[1], false
    if id ~= '' then
      kept = redis_call('GET', control .. ':request:' .. id)
      asked.twin_of[at] = seen[id]  -- a retry may arrive beside its first try
      seen[id] = seen[id] or at
    end
    local is_open = not kept and not asked.twin_of[at]
    asked.answers[at], asked.open[at] = kept or '', is_open
    if is_open then asked.wanted, asked.goes_on = asked.wanted + request[2], asked.goes_on or request[3] end
  end
  return asked
end

-- Shares the coming slots out: a request's first slot must be free now, the rest of a batch may lie ahead, and so
-- may all of one that goes on. Returns how many slots are granted if there are pages for all of them.
local function share_slots(requests, asked, pace, now, lookahead_ms)
  local total, shares = 0, asked.shares
  for at, request in ipairs(requests) do
    local first = pace.slot + total * pace.gap_ms
    local ahead = floor((now + lookahead_ms - first) / pace.gap_ms)
    shares[at] = 0
    if asked.open[at] and (first <= now + GRACE_MS or request[3] and ahead >= 0) then
      shares[at] = min(request[2], 1 + max(0, ahead))
      total = total + shares[at]
    end
  end
  return total
end

local function keep_answer(control, id, answer)
  if id ~= '' then redis.call('SET', control .. ':request:' .. id, answer, 'PX', REPLAY_MS) end
end
