-- delete_pages: removes pages of one shard and all that is kept of them.
-- Promise: a removed page is in no sorted set, its lease is void, an empty host leaves nothing but the
-- settings an operator gave it and, until it is over, its rest. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or ''; msgpack [[host id, page id, path], ...].
-- Reply: 'deleted', then per item 'deleted' or 'unknown'.

-- Forgets the gaps right before a page that is gone: they led to it.
local function close_gaps(shard, host, id)
  for back = 1, PROBES - 1 do
    local before = (id - back) % 2147483648
    local key = record_key(shard, host.hid, bin_of(before, host.bins))
    if redis.call('HGET', key, before) ~= '' then return end
    redis.call('HDEL', key, before)
  end
end

local function delete_page(shard, host, id, bin, record)
  local member = member_of(host.hid, id)
  record = as_leased(record, redis.call('HGET', shard .. ':tokens', member))
  local after = (id + 1) % 2147483648
  if redis.call('HEXISTS', record_key(shard, host.hid, bin_of(after, host.bins)), after) == 1 then
    redis.call('HSET', record_key(shard, host.hid, bin), id, '')  -- or a page pushed on would be lost
  else
    redis.call('HDEL', record_key(shard, host.hid, bin), id)
    close_gaps(shard, host, id)
  end
  redis.call('ZREM', anchor_key(shard, host.hid, bin), id)
  redis.call('HDEL', evidence_key(shard, host.hid, bin), id)
  redis.call('HDEL', requests_key(shard, host.hid, bin), id)
  unwait_page(shard, host, bin, id)
  end_lease(shard, member)
  redis.call('ZREM', shard .. ':held', member)
  redis.call('ZREM', shard .. ':parked', member)
  redis.call('HDEL', shard .. ':late', member)
  host.pages = host.pages - 1
  redis.call('HINCRBY', shard .. ':meta', 'pages', -1)
  return (struct.unpack('<I6', record, TOKEN_AT))
end

-- Tokens of a page that is added again go on increasing.
local function keep_tokens(shard, highest)
  local meta = shard .. ':meta'
  if highest <= (tonumber(redis.call('HGET', meta, 'removed')) or 0) then return end
  redis.call('HSET', meta, 'removed', string.format('%.0f', highest))
  notes[shard] = nil
end

register('delete_pages', function(keys, args)
  local shard = keys[1]
  local now, raw, offset, stale = enter(shard, args[1])
  local reply, hosts, highest = {'deleted'}, {}, 0
  for _, item in ipairs(cmsgpack.unpack(args[2])) do
    local hid, wanted_id, path = unpack(item)
    local host = hosts[hid] or load_host(shard, hid)
    local id, bin, record
    if host then
      hosts[hid] = host
      id, bin, record = find_page(shard, host, wanted_id, path)
    end
    if record then highest = math.max(highest, delete_page(shard, host, id, bin, record)) end
    reply[#reply + 1] = record and 'deleted' or 'unknown'
  end
  keep_tokens(shard, highest)
  for hid, host in pairs(hosts) do
    keep_host(shard, host)
    index_host(shard, host, now)
    if is_bare(host) and host.rest_until <= now then forget_host(shard, hid) end
  end
  keep_clock(shard .. ':meta', raw, offset, stale)
  return reply
end)
