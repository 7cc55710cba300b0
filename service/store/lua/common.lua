-- Shared by every function of the library: keys, the record's layout, and the clock.
-- Defines only locals; writes nothing when loaded.
--
-- A shard is a key prefix (KEYS[1], for example `f:{3}`); all its keys start with it, so all share one
-- hash slot:
--   <shard>:meta          hash: clock, page count, highest token removed, which release writes and since when,
--                         owner, and what sweeps and learners note
--   <shard>:hosts         hash: what there is of each host but its pages, packed (common_host.lua), by host id
--   <shard>:awake         zset: hosts by the due time of their best page
--   <shard>:turns         zset: hosts whose best page is due before their rest ends, by that end, also when it has passed
--   <shard>:resting       zset: hosts that come back to `awake` at the end of their rest, by that end: such hosts where
--                         that page was never crawled or is promoted, and those that stood in the way of others
--   <shard>:leases        zset: `<host>:<page>` by the instant the lease expires
--   <shard>:tokens        hash: the token of the lease by `<host>:<page>`, packed '<I6'; the end of a lease writes it
--                         into the page's record, whose `token` is that of the last lease that ended
--   <shard>:held          zset: `<host>:<page>` by the instant the page waits again
--   <shard>:parked        zset: `<host>:<page>` by the instant it was parked
--   <shard>:sample        string: how many pages the last sweep saw ('<I8'), and the models of some of them
--   <shard>:late          hash: signals that arrived while their page was leased
--   <shard>:seen:<n>      set: messages already counted, one set per generation, expiring
--   <shard>:h:<host>      hash: what was learned of the host: sums, trust in its sources
--   <shard>:b:<host>      zset: bins of the host by their earliest due time (hosts of several bins only)
--   <shard>:r:<host>:<n>  hash: records of bin n by page id
--   <shard>:a:<host>:<n>  zset: anchors of crawled pages; now - score is the effective elapsed time
--   <shard>:e:<host>:<n>  hash: evidence, what is kept of a page's observations for learning
--   <shard>:q:<host>:<n>  hash: requests of readers by page id: '<ddd' discounted count, first_at, updated_at in ms
--   <shard>:audit         stream: who changed what of its hosts; beside the control hash, of all else (`note_change`)
--   <shard>:counted       hash: signals accepted by source number; <shard>:sources: what was learned of each
--   <shard>:observed      stream: observations not yet learned from; <shard>:dirty: set of hosts with new evidence
--   <shard>:d:<host>:<n>  zset: due times of the pages that wait: the moment the crawl value meets the price
-- Times are integer milliseconds: integers stay integers inside a listpack, floats would become text.

-- LEASED is what `as_leased` says; only earlier releases stored it. FIXED: a user vouches for the model. STARTED: the
-- model is a user's starting belief.
local LEASED, PARKED, HELD, FIXED, CRAWLED, STARTED = 1, 2, 4, 8, 16, 32

-- flags, version, failures, gone | interval_s, lead, ceiling, base, slope, near, far, tempo, credit_s | importance, silent_rate,
-- signal_weight, signal_rate | crawled_at, token, accepted token | result, signals, expiries | digest,
-- last_modified, floor (least crawls per day). Behind it: signals per source, etag, scheme letter and path.
local HEAD = '<BBBBfffffffffffffI6I6I4BHBc3I4f'
local HEAD_SIZE = 87
local RANKING_AT, MODEL_AT, HISTORY_AT, FLOOR_AT = 5, 41, 57, 84  -- where ranking, model, crawled_at, floor start
local TOKEN_AT = HISTORY_AT + 6

-- Due scores outside the range of instants: never crawled (before everything, by importance), promoted
-- (to be seen next, whatever they are worth) and dormant (after everything, by ceiling).
local NEVER_CRAWLED, PROMOTED, DORMANT = -4e15, -2e15, 4e15
local NEW_PAGES = -1e15  -- scores below are of pages never crawled or promoted, whose order is their worth
local OLDEST_ANCHOR = -5e14  -- signals age a page no further
local BIN_LOAD = 64  -- a host grows a bin when its pages exceed this mean
-- Timers of each kind handled per call over all its shards, and per shard at most: a call stays short after an outage,
-- and yet more come back than one leases.
local MAX_TIMERS, MAX_TIMERS_OF_ONE = 384, 96
local PROBES = 4  -- ids tried for one path before a collision is given up on
local INFINITE = 1 / 0

-- What is used most, found by the first call: names of the server's are looked up anew each time they are used, and
-- are not there yet when the library is loaded.
local redis_call, fields_of, packed, char, byte, sub, floor, min, max, exp

local function bind()
  redis_call, fields_of, packed = redis.call, struct.unpack, struct.pack
  char, byte, sub = string.char, string.byte, string.sub
  floor, min, max, exp = math.floor, math.min, math.max, math.exp
end

-- Functions carry the library's version in their names, so that two releases can share a server.
local function register(name, callback, flags)
  local function run(keys, args)
    if not redis_call then bind() end
    return callback(keys, args)
  end
  redis.register_function{function_name = name .. '_' .. VERSION, callback = run, flags = flags or {}}
end

local function has(flags, flag) return bit.band(flags, flag) ~= 0 end

local function unpack_head(record)
  local flags, version, failures, gone, interval_s, lead, ceiling, base, slope, near, far, tempo, credit_s, importance,
    silent_rate, signal_weight, signal_rate, crawled_at, token, accepted, result, signals, expiries, digest, modified,
    floor = struct.unpack(HEAD, record)
  -- Named at once, so that the table is made in its full size.
  return {flags = flags, version = version, failures = failures, gone = gone, interval_s = interval_s, lead = lead,
    ceiling = ceiling, base = base, slope = slope, near = near, far = far, tempo = tempo, credit_s = credit_s,
    importance = importance, silent_rate = silent_rate, signal_weight = signal_weight, signal_rate = signal_rate,
    crawled_at = crawled_at, token = token, accepted = accepted, result = result, signals = signals,
    expiries = expiries, digest = digest, modified = modified, floor = floor}
end

local function pack_head(r)
  return struct.pack(HEAD, r.flags, r.version, r.failures, r.gone, r.interval_s, r.lead, r.ceiling, r.base,
    r.slope, r.near, r.far, r.tempo, r.credit_s, r.importance, r.silent_rate, r.signal_weight, r.signal_rate, r.crawled_at,
    r.token, r.accepted, r.result, r.signals, r.expiries, r.digest, r.modified, r.floor)
end

-- Splits what follows the head: counts per source, and what stands behind them (size of the etag, etag, path).
local function split_tail(record)
  local count = byte(record, HEAD_SIZE + 1)
  local at = HEAD_SIZE + 2 + 2 * count
  return count > 0 and sub(record, HEAD_SIZE + 2, at - 1) or '', sub(record, at)
end

local function path_of(record)
  local at = HEAD_SIZE + 2 + 2 * byte(record, HEAD_SIZE + 1)
  return sub(record, at + 1 + byte(record, at))
end

local function pack_tail(sources, rest) return char(#sources / 2) .. sources .. rest end

local function member_of(hid, id) return hid .. ':' .. string.format('%d', id) end

-- A record as it would be with the lease of its page in it: `token` as it is kept, if the page is on lease. No lease is
-- written there: records are the largest part of what the append-only file would get of it, and its end writes them.
local function as_leased(record, token)
  if not token then return record end
  local flags = byte(record)
  if flags % 2 == 0 then flags = flags + LEASED end
  return char(flags) .. sub(record, 2, TOKEN_AT - 1) .. token .. sub(record, TOKEN_AT + 6)
end

-- The lease of a page is over; what its record said of it must be written.
local function end_lease(shard, member)
  redis_call('ZREM', shard .. ':leases', member)
  redis_call('HDEL', shard .. ':tokens', member)
end

-- Adds one to the count of a source (a byte index) in the pairs string.
local function count_source(sources, index)
  for at = 1, #sources, 2 do
    if byte(sources, at) == index then
      local count = min(255, byte(sources, at + 1) + 1)
      return sub(sources, 1, at) .. char(count) .. sub(sources, at + 2)
    end
  end
  if #sources >= 32 then return sources end
  return sources .. char(index, 1)
end

-- What this server remembers between calls, so that it need not be read again. By shard: when the next thing
-- happens there by the clock alone (`wake`), which value its pages are ranked by, the highest token of pages that
-- were removed, when these were read, and when the shard's clock was kept.
local notes = {}

-- By the first shard of a call: the pages its last look at the shards found, best first, for the next calls to go on
-- with; the first that is left, when that was, and the hosts whose pages are as they were then, by host id.
-- Forgotten where a page comes to stand ready.
local shortlists = {}

-- By the first shard of a call: how many looks were needed since `at` because a shortlist was used up, how many before,
-- so many `turns` are taken now, and which is the next.
local rushes = {}

-- By control hash: the generation of answers (common_answers.lua) that was last seen to expire.
local generations = {}

-- Monotonic milliseconds: raw + offset, where the offset grows by every backward step of the raw clock. `stored`
-- begins with what was kept of both: at most every 100 ms, so a step shorter than that may pass unseen.
local function clock_of(stored, given)
  local raw = tonumber(given)
  if not raw then
    local time = redis.call('TIME')
    raw = time[1] * 1000 + time[2] / 1000
  end
  local last, offset = tonumber(stored[1]), tonumber(stored[2]) or 0
  if not last then notes, shortlists, rushes, generations = {}, {}, {}, {} end  -- a store that was emptied
  if last and raw < last then offset = offset + (last - raw) end
  local stepped = last and raw < last
  return raw + offset, raw, offset, (not last) or stepped or raw - last >= 100, stepped
end

local function clock(meta, given) return clock_of(redis.call('HMGET', meta, 'raw', 'offset'), given) end

-- Functions of another release do not know what these remember: whichever writes to a shard after the other,
-- whose name is `library`, says from when on.
local function take_over(meta, library, now)
  if library ~= VERSION then redis.call('HSET', meta, 'library', VERSION, 'since', string.format('%.3f', now)) end
end

-- Begins every function that writes to a shard, but those that lease: its clock.
local function enter(shard, given)
  local meta = shard .. ':meta'
  local stored = redis_call('HMGET', meta, 'raw', 'offset', 'library')
  local now, raw, offset, stale = clock_of(stored, given)
  take_over(meta, stored[3], now)
  return now, raw, offset, stale
end

local function keep_clock(meta, raw, offset, stale)
  if stale then
    redis.call('HSET', meta, 'raw', string.format('%.3f', raw), 'offset', string.format('%.3f', offset))
  end
end

-- Whether a message was seen before (within one to two generations), perhaps under an earlier name; remembers it
-- if not.
local GENERATION_MS = 600000
local function is_repeat(shard, name, now, before)
  local generation = math.floor(now / GENERATION_MS)
  local current = shard .. ':seen:' .. string.format('%d', generation)
  local last = shard .. ':seen:' .. string.format('%d', generation - 1)
  if redis.call('SISMEMBER', last, name) == 1 then return true end
  if before and redis.call('SISMEMBER', last, before) + redis.call('SISMEMBER', current, before) > 0 then return true end
  if redis.call('SADD', current, name) == 0 then return true end
  redis.call('PEXPIRE', current, 3 * GENERATION_MS)
  return false
end

-- Keeps beside the control hash, or in a shard, who changed what: which fields were what before and are what since.
-- `name` says of which host, source or key, '' where there is but one. The last thousand or so are kept.
local function note_change(place, now, actor, what, name, old, new)
  for _, fields in ipairs({old, new}) do
    for field, value in pairs(fields) do
      if type(value) == 'number' then fields[field] = string.format('%.17g', value) end  -- cjson keeps 14 digits
    end
  end
  redis.call('XADD', place .. ':audit', 'MAXLEN', '~', 1000, '*', 'at', string.format('%.0f', now), 'actor', actor,
    'what', what, 'name', name, 'old', cjson.encode(old), 'new', cjson.encode(new))
end

-- Linear hashing: the bin of a page id among `bins` bins, which grow one at a time.
local function bin_of(id, bins)
  local level = 1
  while level * 2 <= bins do level = level * 2 end
  local bin = id % (level * 2)
  if bin >= bins then bin = id % level end
  return bin
end

-- Numbers of bins as the ends of keys: to write a number costs more than the rest of a key.
local endings = {}

local function ending(bin)
  local text = endings[bin]
  if not text then
    text = ':' .. bin
    endings[bin] = text
  end
  return text
end

local function record_key(shard, hid, bin) return shard .. ':r:' .. hid .. ending(bin) end
local function anchor_key(shard, hid, bin) return shard .. ':a:' .. hid .. ending(bin) end
local function evidence_key(shard, hid, bin) return shard .. ':e:' .. hid .. ending(bin) end
local function requests_key(shard, hid, bin) return shard .. ':q:' .. hid .. ending(bin) end
local function due_key(shard, hid, bin) return shard .. ':d:' .. hid .. ending(bin) end

-- Finds a page by its path (collisions of the 31-bit id are probed) or, with no path, by its exact id.
-- Returns id, bin, record; without a record, the id is the first free one (nil: none is free). An empty
-- record is the gap a removed page left before one that had been pushed on.
local function find_page(shard, host, id, path)
  local free_id, free_bin
  for probe = 0, PROBES - 1 do
    local candidate = (id + probe) % 2147483648
    local bin = bin_of(candidate, host.bins)
    local record = redis_call('HGET', record_key(shard, host.hid, bin), candidate)
    if not record or record == '' then
      free_id, free_bin = free_id or candidate, free_bin or bin
      if not record or path == '' then break end
    else
      if path == '' or path_of(record) == path then return candidate, bin, record end
    end
  end
  return free_id, free_bin, nil
end
