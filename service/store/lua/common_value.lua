-- Shared by every function of the library, after common.lua: when a page is due, and what it is worth. Defines
-- only locals.

-- From when a page's age counts: its anchor, or where the policy gives each signal a worth of its own
-- (`credit_s`, 0 to ignore them), its last crawl moved back by that.
local function aged_since(anchor, credit_s, crawled_at, signals)
  if credit_s < 0 then return anchor end
  return math.max(crawled_at - signals * credit_s * 1000, OLDEST_ANCHOR)
end

-- The due score of a crawled page whose age counts from `since`.
local function ranked_due(interval_s, ceiling, since)
  if interval_s < 0 then return DORMANT - math.floor(math.log(math.min(math.max(ceiling, 1e-300), 1e300)) * 1e9) end
  local due = since + interval_s * 1000
  if due < -9e14 then return -9e14 end
  if due > 2.9e15 then return 2.9e15 end
  return due - due % 1  -- rounded down
end

-- The due score of a page never crawled.
local function first_due(importance) return NEVER_CRAWLED - floor(math.log(max(importance, 1e-300)) * 1e9) end

local function due_score(r, anchor)
  if not has(r.flags, CRAWLED) then return first_due(r.importance) end
  return ranked_due(r.interval_s, r.ceiling, aged_since(anchor, r.credit_s, r.crawled_at, r.signals))
end

-- A value without a ceiling, exact at any depth: its slope grows by `near` per depth, or towards `far`, of which
-- it lacks `slope` at first.
local function open_value(past, base, slope, near, far)
  local value = base + slope * past + near * past * past / 2
  if far > 0 then value = base + far * past - slope * (1 - exp(min(-near * past, 700))) / near end
  return max(value, 0)
end

-- The local form of V, `past` in depth beyond its centre, which lies `lead` beyond the due time;
-- policy/ranking.py computes its coefficients, explains it, and mirrors it. Also returns interval and credit.
-- Comparisons instead of min and max: a call of those costs as much as the rest of the line.
local function local_value(record, past_due_s)
  local interval_s, lead, ceiling, base, slope, near, far, tempo, credit_s, _, _, weight =
    fields_of('<ffffffffffff', record, RANKING_AT)
  local depth = (interval_s < 0 and -interval_s or interval_s) * tempo + lead
  local past = tempo * past_due_s - lead
  if past < -depth then past = -depth end
  if ceiling == INFINITE then return open_value(past, base, slope, near, far), interval_s, credit_s end
  local bend = near
  if past < 0 then
    bend = 1 / depth
  elseif weight > 0 and credit_s < 0 then
    if past > weight then
      bend = far + ((ceiling - base) / slope - 1 - far) * (1 - weight / past)
    else
      local knee = -depth % weight
      if past > knee then
        local ramp = (past - knee) * (1 + past) / (past * past)
        local full = (weight - knee) * (1 + weight) / (weight * weight)
        bend = near + (far - near) * ramp / full
      end
    end
  end
  local left = exp(-past)
  local value = base + slope * ((1 - left) + bend * (1 - left * (1 + past)))
  if past < 0 then
    -- Just after a crawl the value is 0; what the form misses there is taken out, fading towards the centre.
    local whole = exp(depth)
    local missed = base + slope * ((1 - whole) + bend * (1 - whole * (1 - depth)))
    value = value - (past / depth) ^ 4 * missed
  end
  if value > ceiling then value = ceiling elseif value < 0 then value = 0 end
  return value, interval_s, credit_s
end

-- κ of one source: by the host's weights, where it hears of several; else what the page's own model says (`own`).
local function weight_of(weights, own, source)
  for at = 1, #weights, 5 do
    if byte(weights, at) == source then return (fields_of('<f', weights, at + 1)) end
  end
  return own
end

-- How deep the signals counted in `sources` make a page.
local function signals_depth(weights, own, sources)
  local depth = 0
  for at = 1, #sources, 2 do
    depth = depth + byte(sources, at + 1) * weight_of(weights, own, byte(sources, at))
  end
  return depth
end

-- The anchor of a crawled page: its last crawl, moved back by what the signals since are worth.
local function anchor_after(crawled_at, silent_rate, depth)
  if silent_rate == 0 then return crawled_at end
  return floor(max(crawled_at - depth / silent_rate * 1000, OLDEST_ANCHOR))
end

-- What a page without a due time is worth now: dormant, promoted or new. Its anchor is asked for. If it was crawled,
-- also the interval and credit it is ranked by.
local function value_by_anchor(shard, hid, bin, id, record, now)
  local r = unpack_head(record)
  if not has(r.flags, CRAWLED) then return r.ceiling < INFINITE and r.ceiling or r.base end
  local anchor = tonumber(redis_call('ZSCORE', anchor_key(shard, hid, bin), id))
  local since = aged_since(anchor, r.credit_s, r.crawled_at, r.signals)
  return local_value(record, (now - since) / 1000 - math.abs(r.interval_s))
end
