-- Shared by every function of the library, after common.lua: the indexes that lead from a shard to its best
-- host and from a host to its best page, and what moves pages and hosts between them. Defines only locals.

-- The earliest due time of a host, exact; nil when none of its pages waits.
local function host_due(shard, host)
  local key = host.bins > 1 and (shard .. ':b:' .. host.hid) or due_key(shard, host.hid, 0)
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
end

-- Brings the bin index of a host of several bins up to date with one bin.
local function index_bin(shard, host, bin)
  if host.bins == 1 then return end
  local first = redis.call('ZRANGE', due_key(shard, host.hid, bin), 0, 0, 'WITHSCORES')[2]
  if first then
    redis.call('ZADD', shard .. ':b:' .. host.hid, first, bin)
  else
    redis.call('ZREM', shard .. ':b:' .. host.hid, bin)
  end
end

-- Puts a host where it belongs: awake by its best page, or nowhere if it rests or none of its pages waits.
local function index_host(shard, host)
  local awake = shard .. ':awake'
  local due = host_due(shard, host)
  if not due or redis.call('ZSCORE', shard .. ':resting', host.hid) then
    redis.call('ZREM', awake, host.hid)
  else
    redis.call('ZADD', awake, due, host.hid)
  end
end

local function rest_host(shard, hid, until_ms)
  redis.call('ZREM', shard .. ':awake', hid)
  redis.call('ZADD', shard .. ':resting', 'GT', math.floor(until_ms), hid)
end

-- A page starts or goes on waiting: its due time enters the host's sorted set and the indexes above it.
local function wait_page(shard, host, bin, id, due)
  redis.call('ZADD', due_key(shard, host.hid, bin), due, id)
  if host.bins > 1 then redis.call('ZADD', shard .. ':b:' .. host.hid, 'LT', due, bin) end
  if not redis.call('ZSCORE', shard .. ':resting', host.hid) then
    redis.call('ZADD', shard .. ':awake', 'LT', due, host.hid)
  end
end

-- A page stops waiting: leased, parked, held or removed.
local function unwait_page(shard, host, bin, id)
  redis.call('ZREM', due_key(shard, host.hid, bin), id)
  index_bin(shard, host, bin)
end

-- Takes a leased or held page back: it waits again, where its anchor says.
local function return_page(shard, hid, id, clear, expired)
  local host = load_host(shard, hid)
  if not host then return end
  local bin = bin_of(id, host.bins)
  local key = record_key(shard, hid, bin)
  local record = redis.call('HGET', key, id)
  if not record then return end
  local r = unpack_head(record)
  if not has(r.flags, clear) then return end
  local anchor = tonumber(redis.call('ZSCORE', anchor_key(shard, hid, bin), id))
  r.flags = r.flags - clear
  if clear == LEASED then
    if expired then r.expiries = math.min(255, r.expiries + 1) end
    redis.call('HDEL', shard .. ':late', hid .. ':' .. string.format('%d', id))
    redis.call('HINCRBY', shard .. ':meta', 'leases', -1)
  end
  redis.call('HSET', key, id, pack_head(r) .. record:sub(HEAD_SIZE + 1))
  wait_page(shard, host, bin, id, due_score(r, anchor))
end

-- Lets what has come due by the clock happen: rests end, leases expire, held pages return.
local function run_timers(shard, now)
  local timers, resting = shard .. ':timers', shard .. ':resting'
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', timers, '-inf', now, 'LIMIT', 0, MAX_TIMERS)) do
    redis.call('ZREM', timers, member)
    local kind, hid, id = member:match('^(%a):([^:]+):(%d+)$')
    return_page(shard, hid, tonumber(id), kind == 'l' and LEASED or HELD, true)
  end
  for _, hid in ipairs(redis.call('ZRANGEBYSCORE', resting, '-inf', now, 'LIMIT', 0, MAX_TIMERS)) do
    redis.call('ZREM', resting, hid)
    local host = load_host(shard, hid)
    if host then index_host(shard, host) end
  end
end

-- Last step of every writing function: notes the shard's best due time and earliest timer, so that the
-- choice between shards reads one hash per shard.
local function seal(shard)
  local best = redis.call('ZRANGE', shard .. ':awake', 0, 0, 'WITHSCORES')[2] or ''
  local timer = tonumber(redis.call('ZRANGE', shard .. ':timers', 0, 0, 'WITHSCORES')[2]) or math.huge
  local rested = tonumber(redis.call('ZRANGE', shard .. ':resting', 0, 0, 'WITHSCORES')[2]) or math.huge
  local wake = math.min(timer, rested)
  redis.call('HSET', shard .. ':meta', 'best', best, 'wake', wake < math.huge and string.format('%.0f', wake) or '')
end
