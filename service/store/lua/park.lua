-- park: gives pages of one shard up, or has those that were given up wait again.
-- Promise: a lease of the page is void, and what is believed of it stays; one that comes back starts as if no crawl of it
-- had failed. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or ''; 1 to give up, 0 to take back; msgpack [[host id, page id, path], ...].
-- Reply: 'park', then per item 'parked', 'released', 'unmoved' (it is so already) or 'unknown'.

local function give_up(shard, host, id, bin, r, now)
  if r.flags % 8 == 0 then
    unwait_page(shard, host, bin, id)
    index_host(shard, host, now)
  end
  redis.call('ZREM', shard .. ':held', member_of(host.hid, id))
  r.flags = r.flags - r.flags % 8
  park_page(shard, host.hid, id, r, now)
end

local function take_back(shard, host, id, bin, r, now)
  r.flags = r.flags - PARKED
  r.failures, r.gone, r.expiries = 0, 0, 0
  redis.call('ZREM', shard .. ':parked', member_of(host.hid, id))
  local anchor = tonumber(redis.call('ZSCORE', anchor_key(shard, host.hid, bin), id))
  wait_page(shard, host, bin, id, due_score(r, anchor), now)
end

local function move_page(shard, parks, host, item, now)
  local id, bin, record = find_page(shard, host, item[2], item[3])
  if not record then return 'unknown' end
  local member = member_of(host.hid, id)
  local r = unpack_head(as_leased(record, redis.call('HGET', shard .. ':tokens', member)))
  if parks == has(r.flags, PARKED) then return 'unmoved' end
  r.token = r.token - r.token % 65536  -- void, yet no later one is below it: an outcome no longer tells of signals since
  end_lease(shard, member)
  redis.call('HDEL', shard .. ':late', member)
  local move = parks and give_up or take_back
  move(shard, host, id, bin, r, now)
  redis.call('HSET', record_key(shard, host.hid, bin), id, pack_head(r) .. record:sub(HEAD_SIZE + 1))
  return parks and 'parked' or 'released'
end

register('park', function(keys, args)
  local shard, parks = keys[1], args[2] == '1'
  local now, raw, offset, stale = enter(shard, args[1])
  local reply = {'park'}
  for at, item in ipairs(cmsgpack.unpack(args[3])) do
    local host = load_host(shard, item[1])
    reply[at + 1] = host and move_page(shard, parks, host, item, now) or 'unknown'
  end
  keep_clock(shard .. ':meta', raw, offset, stale)
  return reply
end)
