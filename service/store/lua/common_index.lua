-- Shared by every function of the library, after common.lua: the indexes that lead from a shard to its best
-- host and from a host to its best page, and what moves pages and hosts between them. Defines only locals.

-- By the first shard of a call: what its last look at the shards left over, for the next call to choose from,
-- and when. It lives in this server's memory only, so whoever chooses from it checks each page in the store;
-- it is forgotten where a page comes to stand ready.
local shortlists = {}

local function stands_ready(due, now)
  if not now or due <= now then shortlists = {} end
end

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

-- Puts a host where its best page says: awake by that page's due time, or resting by the end of its rest if
-- that comes later, or nowhere if no page waits. Without `now` a rest that is over may be taken for one that
-- is not; its timer puts that right.
local function place_host(shard, host, due, now)
  local awake, resting = shard .. ':awake', shard .. ':resting'
  if due and (due >= host.rest_until or host.rest_until <= (now or 0)) then
    redis.call('ZADD', awake, due, host.hid)
    if host.rest_until > 0 then redis.call('ZREM', resting, host.hid) end
    return
  end
  redis.call('ZREM', awake, host.hid)
  if due then
    redis.call('ZADD', resting, host.rest_until, host.hid)
  else
    redis.call('ZREM', resting, host.hid)
  end
end

local function index_host(shard, host, now)
  local due = host_due(shard, host)
  if due then stands_ready(due, now) end
  place_host(shard, host, due, now)
end

-- No page of the host is leased before `until_ms`; index_host must follow.
local function rest_host(shard, host, until_ms)
  host.rest_until = math.max(host.rest_until, math.floor(until_ms))
  redis.call('HSET', shard .. ':h:' .. host.hid, 'rest_until', string.format('%.0f', host.rest_until))
end

local function append(list, first, second)
  local size = #list
  list[size + 1] = first
  list[size + 2] = second
end

-- index_host for many hosts of a call at once. Of one that never rested and from which no waiting page was
-- taken (`moved`) the earliest of the pages that came (`due`) tells enough.
local function place_hosts(shard, hosts, now)
  local sooner, awake, resting, not_awake, not_resting = {}, {}, {}, {}, {}
  for _, host in ipairs(hosts) do
    if host.due then stands_ready(host.due, now) end
    if host.rest_until == 0 and not host.moved then
      append(sooner, host.due, host.hid)
    else
      local due = host_due(shard, host)
      local may_be_asked = due and (due >= host.rest_until or host.rest_until <= now)
      if may_be_asked then append(awake, due, host.hid) else not_awake[#not_awake + 1] = host.hid end
      if due and not may_be_asked then
        append(resting, host.rest_until, host.hid)
      elseif host.rest_until > 0 then
        not_resting[#not_resting + 1] = host.hid
      end
    end
  end
  if #sooner > 0 then redis.call('ZADD', shard .. ':awake', 'LT', unpack(sooner)) end
  if #awake > 0 then redis.call('ZADD', shard .. ':awake', unpack(awake)) end
  if #not_awake > 0 then redis.call('ZREM', shard .. ':awake', unpack(not_awake)) end
  if #resting > 0 then redis.call('ZADD', shard .. ':resting', unpack(resting)) end
  if #not_resting > 0 then redis.call('ZREM', shard .. ':resting', unpack(not_resting)) end
end

-- A page starts or goes on waiting: its due time enters the host's sorted set and the indexes above it.
local function wait_page(shard, host, bin, id, due, now)
  redis.call('ZADD', due_key(shard, host.hid, bin), due, id)
  if host.bins > 1 then redis.call('ZADD', shard .. ':b:' .. host.hid, 'LT', due, bin) end
  stands_ready(due, now)
  if host.rest_until == 0 then
    redis.call('ZADD', shard .. ':awake', 'LT', due, host.hid)
  else
    place_host(shard, host, host_due(shard, host), now)
  end
end

-- A page stops waiting: leased, parked, held or removed.
local function unwait_page(shard, host, bin, id)
  redis.call('ZREM', due_key(shard, host.hid, bin), id)
  index_bin(shard, host, bin)
end

-- Takes a leased or held page back: it waits again, where its anchor says. Whether it was there to be taken;
-- leases are counted by whoever calls.
local function return_page(shard, hid, id, clear, expired, now)
  local host = load_host(shard, hid)
  if not host then return false end
  local bin = bin_of(id, host.bins)
  local key = record_key(shard, hid, bin)
  local record = redis.call('HGET', key, id)
  if not record then return false end
  local r = unpack_head(record)
  if not has(r.flags, clear) then return false end
  local anchor = tonumber(redis.call('ZSCORE', anchor_key(shard, hid, bin), id))
  r.flags = r.flags - clear
  if clear == LEASED then
    if expired then r.expiries = math.min(255, r.expiries + 1) end
    redis.call('HDEL', shard .. ':late', hid .. ':' .. string.format('%d', id))
  end
  redis.call('HSET', key, id, pack_head(r) .. record:sub(HEAD_SIZE + 1))
  wait_page(shard, host, bin, id, due_score(r, anchor), now)
  return true
end

local function first_score(key) return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or math.huge end

-- When the next thing happens in a shard by the clock alone.
local function wake_of(shard) return math.min(first_score(shard .. ':timers'), first_score(shard .. ':resting')) end

-- Lets what has come due by the clock happen: rests end, leases expire, held pages return. Returns how many
-- leases expired; whoever calls counts them and seals the shard.
local function run_timers(shard, now)
  local timers, resting, expired = shard .. ':timers', shard .. ':resting', 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', timers, '-inf', now, 'LIMIT', 0, MAX_TIMERS)) do
    redis.call('ZREM', timers, member)
    local kind, hid, id = member:match('^(%a):([^:]+):(%d+)$')
    if return_page(shard, hid, tonumber(id), kind == 'l' and LEASED or HELD, true, now) and kind == 'l' then
      expired = expired + 1
    end
  end
  local rested, awake = redis.call('ZRANGEBYSCORE', resting, '-inf', now, 'LIMIT', 0, MAX_TIMERS), {}
  for _, hid in ipairs(rested) do
    local bins = tonumber(redis.call('HGET', shard .. ':h:' .. hid, 'bins') or nil)
    local due = bins and host_due(shard, {hid = hid, bins = bins})
    if due then append(awake, due, hid) end
  end
  if #rested > 0 then redis.call('ZREM', resting, unpack(rested)) end
  if #awake > 0 then redis.call('ZADD', shard .. ':awake', unpack(awake)) end
  return expired
end

-- Last step of every writing function: notes the shard's best due time and earliest timer, so that the
-- choice between shards reads one hash per shard.
local function seal(shard)
  local best, wake = first_score(shard .. ':awake'), wake_of(shard)
  redis.call('HSET', shard .. ':meta', 'best', best < math.huge and best or '',
    'wake', wake < math.huge and wake or '')
end
