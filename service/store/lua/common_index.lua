-- Shared by every function of the library, after common.lua: the indexes that lead from a shard to its best
-- host and from a host to its best page, and what moves pages and hosts between them. Defines only locals.

local function stands_ready(due, now)
  if not now or due <= now then shortlists = {} end
end

-- The earliest due time of a host, exact; nil when none of its pages waits.
local function host_due(shard, host)
  local key = host.bins > 1 and (shard .. ':b:' .. host.hid) or due_key(shard, host.hid, 0)
  local due = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  return due and due + 0
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
-- is not; its timer puts that right, and a page that came to stand ready is found by the next look.
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
  if due and now then stands_ready(due, now) end
  place_host(shard, host, due, now)
end

-- No page of the host is leased before `until_ms`; keep_host and index_host must follow.
local function rest_host(host, until_ms)
  host.rest_until = math.min(math.max(host.rest_until, math.floor(until_ms)), LATEST)
end

local function append(list, first, second)
  local size = #list
  list[size + 1] = first
  list[size + 2] = second
end

-- Where hosts wait that are awake, by host id.
local function awake_at(shard, hosts)
  local hids, found = {}, {}
  for at, host in ipairs(hosts) do hids[at] = host.hid end
  for at, score in ipairs(#hids > 0 and redis.call('ZMSCORE', shard .. ':awake', unpack(hids)) or {}) do
    found[hids[at]] = tonumber(score or nil)
  end
  return found
end

-- index_host for many hosts of a call at once. Of one that is awake and from which no waiting page was taken
-- (`moved`) the earliest of the pages that came (`due`) tells enough.
local function place_hosts(shard, hosts, now)
  local awake, resting, not_awake, not_resting, was = {}, {}, {}, {}, awake_at(shard, hosts)
  for _, host in ipairs(hosts) do
    local hid, due = host.hid, was[host.hid]
    if host.due then stands_ready(host.due, now) end
    if host.is_new then
      due = host.due
    elseif due and not host.moved then
      due = math.min(due, host.due)
    else
      due = host_due(shard, host)
    end
    if due and (due >= host.rest_until or host.rest_until <= now) then
      if due ~= was[hid] then append(awake, due, hid) end
      if not was[hid] and host.rest_until > 0 then not_resting[#not_resting + 1] = hid end
    else
      if was[hid] then not_awake[#not_awake + 1] = hid end
      if due then append(resting, host.rest_until, hid) else not_resting[#not_resting + 1] = hid end
    end
  end
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

-- Takes a leased or held page back: it waits again, where its anchor says.
local function return_page(shard, hid, id, clear, expired, now)
  local host = load_host(shard, hid)
  if not host then return end
  local bin = bin_of(id, host.bins)
  local key = record_key(shard, hid, bin)
  local record = redis.call('HGET', key, id)
  if not record or record == '' then return end
  local r = unpack_head(record)
  if not has(r.flags, clear) then return end
  local anchor = tonumber(redis.call('ZSCORE', anchor_key(shard, hid, bin), id))
  r.flags = r.flags - clear
  if clear == LEASED then
    if expired then r.expiries = math.min(255, r.expiries + 1) end
    redis.call('HDEL', shard .. ':late', hid .. ':' .. string.format('%d', id))
  end
  redis.call('HSET', key, id, pack_head(r) .. record:sub(HEAD_SIZE + 1))
  wait_page(shard, host, bin, id, due_score(r, anchor), now)
end

local function first_score(key) return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or math.huge end

-- When the next thing happens in a shard by the clock alone.
local function wake_of(shard)
  return math.min(first_score(shard .. ':leases'), first_score(shard .. ':held'), first_score(shard .. ':resting'))
end

-- Takes what has come due by now out of a sorted set.
local function take_due(key, now)
  local members = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, MAX_TIMERS)
  if #members > 0 then redis.call('ZREM', key, unpack(members)) end
  return members
end

local function return_pages(shard, members, flag, now)
  for _, member in ipairs(members) do
    local hid, id = member:match('^([^:]+):(%d+)$')
    return_page(shard, hid, tonumber(id), flag, true, now)
  end
end

-- Lets what has come due by the clock happen: leases expire, held pages return, rests end.
local function run_timers(shard, now)
  return_pages(shard, take_due(shard .. ':leases', now), LEASED, now)
  return_pages(shard, take_due(shard .. ':held', now), HELD, now)
  local rested, awake = take_due(shard .. ':resting', now), {}
  if #rested == 0 then return end
  for at, raw in ipairs(redis.call('HMGET', shard .. ':hosts', unpack(rested))) do
    local due = raw and host_due(shard, {hid = rested[at], bins = bins_of(raw)})
    if due then append(awake, due, rested[at]) end
  end
  if #awake > 0 then redis.call('ZADD', shard .. ':awake', unpack(awake)) end
end
