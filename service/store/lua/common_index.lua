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

local NOT = {awake = 'not_awake', turns = 'not_turns', resting = 'not_resting'}

-- Where a host waits, and by what: awake by the due time of its best page; where that comes before the end of its
-- rest, by that end, among those that take turns. A new or promoted page is worth its place before all others, so
-- its host comes back to it: until then it rests. Without `now` a rest that is over may be taken for one that
-- is not; its timer puts that right, and a page that came to stand ready is found by the next look.
local function place_of(host, due, now)
  local rest_until = host.rest_until  -- 0: it never had one
  local is_over = rest_until == 0 or due <= NEW_PAGES and rest_until <= (now or 0)
  if due >= rest_until or is_over then return 'awake', due end
  return due > NEW_PAGES and 'turns' or 'resting', rest_until
end

-- Puts a host where its best page says, or nowhere if no page waits.
local function place_host(shard, host, due, now)
  local place, score
  if due then
    place, score = place_of(host, due, now)
  elseif host.pages == 0 and host.rest_until > (now or 0) then  -- it is forgotten when it has rested
    place, score = 'resting', host.rest_until
  end
  for _, name in ipairs({'awake', 'turns', 'resting'}) do
    if name == place then
      redis.call('ZADD', shard .. ':' .. name, score, host.hid)
    elseif name == 'awake' or host.rest_until > 0 then
      redis.call('ZREM', shard .. ':' .. name, host.hid)
    end
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

-- Hosts of a call on their way to where they wait: by place {score, host id, ...}, by `NOT` a place {host id, ...} of
-- those gone.
local function move(moves, place, first, second)
  local list = moves[place]
  if list then append(list, first, second) else moves[place] = {first, second} end
end

local function move_hosts(shard, moves)
  for name, leave in pairs(NOT) do
    if moves[name] then redis_call('ZADD', shard .. ':' .. name, unpack(moves[name])) end
    if moves[leave] then redis_call('ZREM', shard .. ':' .. name, unpack(moves[leave])) end
  end
end

-- The scores of those of the hosts that wait in a place, by host id.
local function scores_in(key, hids)
  local found = {}
  for at, score in ipairs(#hids > 0 and redis_call('ZMSCORE', key, unpack(hids)) or {}) do
    found[hids[at]] = tonumber(score or nil)
  end
  return found
end

-- Which of the hosts are awake, and which take turns; only one that had a rest does.
local function places_were(shard, hosts)
  local hids, others = {}, {}
  for at, host in ipairs(hosts) do hids[at] = host.hid end
  local awake = scores_in(shard .. ':awake', hids)
  for _, host in ipairs(hosts) do
    if not awake[host.hid] and host.rest_until > 0 then others[#others + 1] = host.hid end
  end
  return awake, scores_in(shard .. ':turns', others)
end

-- index_host for many hosts of a call at once. Of one from which no waiting page was taken and whose rest is what it
-- was (not `moved`), the earliest of the pages that came (`due`) tells enough.
local function place_hosts(shard, hosts, now)
  local moves, awake, turns = {}, places_were(shard, hosts)
  local stood = {awake = awake, turns = turns, resting = {}}
  for _, host in ipairs(hosts) do
    local hid, due = host.hid, host.due
    local was = awake[hid] and 'awake' or turns[hid] and 'turns' or host.rest_until > 0 and 'resting'
    if due then stands_ready(due, now) end
    if was == 'awake' and not host.moved then
      due = min(due, awake[hid])
    elseif was == 'turns' and not host.moved and due > NEW_PAGES then
      due = turns[hid] - 1  -- it goes on waiting for its turn
    elseif not host.is_new then
      due = host_due(shard, host)
    end
    local place, score
    if due then place, score = place_of(host, due, now) end
    if place and score ~= stood[place][hid] then move(moves, place, score, hid) end
    if was and was ~= place then move(moves, NOT[was], hid) end
  end
  move_hosts(shard, moves)
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

local MOST_EXPIRIES = 20  -- in a row: then a page is given up
local backoff_ms, park_page, hold_back
do
  local FIRST_BACKOFF_MS, LONGEST_BACKOFF_MS = 30000, 3600000
  local FREE_EXPIRIES = 4  -- in a row, after which a page comes back at once

  -- For how long what has failed so often before is left alone.
  function backoff_ms(count) return min(LONGEST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ^ min(count, 12)) end

  -- Notes that a page is given up; it must be in no other index, and its record is still to be written.
  function park_page(shard, hid, id, r, now)
    r.flags = r.flags + PARKED
    redis_call('ZADD', shard .. ':parked', floor(now), member_of(hid, id))
  end

  -- Whether a page whose lease ran out must not wait again at once: perhaps it is what kills the crawlers.
  function hold_back(shard, hid, id, r, now)
    if r.expiries <= FREE_EXPIRIES then return false end
    if r.expiries >= MOST_EXPIRIES then
      park_page(shard, hid, id, r, now)
    else
      r.flags = r.flags + HELD
      local until_ms = floor(now + backoff_ms(r.expiries - FREE_EXPIRIES - 1))
      redis_call('ZADD', shard .. ':held', until_ms, member_of(hid, id))
    end
    return true
  end
end

-- Takes a leased or held page back: it waits again, where its anchor says.
local function return_page(shard, hid, id, clear, expired, now)
  local host = load_host(shard, hid)
  if not host then return end
  local bin = bin_of(id, host.bins)
  local key = record_key(shard, hid, bin)
  local record = redis.call('HGET', key, id)
  if not record or record == '' then return end
  local member = member_of(hid, id)
  if clear == LEASED then
    record = as_leased(record, redis_call('HGET', shard .. ':tokens', member))
    end_lease(shard, member)
  end
  local r = unpack_head(record)
  if not has(r.flags, clear) then return end
  local anchor = tonumber(redis.call('ZSCORE', anchor_key(shard, hid, bin), id))
  local is_held_back = false
  r.flags = r.flags - clear
  if clear == LEASED then
    if expired then  -- its outcome may still come, so signals stay apart
      r.expiries = r.expiries < MOST_EXPIRIES and r.expiries + 1 or 1  -- an earlier release went on counting
      is_held_back = hold_back(shard, hid, id, r, now)
    else
      redis.call('HDEL', shard .. ':late', member)
    end
  end
  redis.call('HSET', key, id, pack_head(r) .. record:sub(HEAD_SIZE + 1))
  if not is_held_back then wait_page(shard, host, bin, id, due_score(r, anchor), now) end
end

-- When the next thing happens in a shard by the clock alone.
local function wake_of(shard)
  local wake = INFINITE
  for _, name in ipairs({':leases', ':held', ':resting'}) do
    local first = redis_call('ZRANGE', shard .. name, 0, 0, 'WITHSCORES')[2]
    if first then wake = min(wake, first + 0) end
  end
  return wake
end

-- Takes what has come due by now out of a sorted set.
local function take_due(key, now, most)
  local members = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, most)
  if #members > 0 then redis.call('ZREM', key, unpack(members)) end
  return members
end

local function return_pages(shard, members, flag, now)
  for _, member in ipairs(members) do
    local hid, id = member:match('^([^:]+):(%d+)$')
    return_page(shard, hid, tonumber(id), flag, true, now)
  end
end

-- Whether there is nothing to remember of a host but its rest.
local function is_bare(host)
  return host.pages == 0 and not host.delay_ms and host.gap_ms == 0 and host.paused_until == 0
end

local function forget_host(shard, hid)
  redis.call('DEL', shard .. ':h:' .. hid, shard .. ':b:' .. hid)
  redis.call('HDEL', shard .. ':hosts', hid)
  redis.call('SREM', shard .. ':dirty', hid)
end

-- Lets what has come due by the clock happen, at most so many of each kind: leases expire, held pages return, rests end
-- that new pages wait for, or after which an empty host is forgotten.
local function run_timers(shard, now, most)
  return_pages(shard, take_due(shard .. ':leases', now, most), LEASED, now)
  return_pages(shard, take_due(shard .. ':held', now, most), HELD, now)
  local rested, hosts = take_due(shard .. ':resting', now, most), {}
  for at, raw in ipairs(#rested > 0 and redis_call('HMGET', shard .. ':hosts', unpack(rested)) or {}) do
    local host = raw and unpack_host(rested[at], raw)
    if host and is_bare(host) then
      forget_host(shard, host.hid)
    elseif host then
      host.moved = true
      hosts[#hosts + 1] = host
    end
  end
  place_hosts(shard, hosts, now)
end
