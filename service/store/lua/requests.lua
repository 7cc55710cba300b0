-- requests: counts what readers asked for of pages of one shard, old requests weighing less and less.
-- Promise: a batch counts once (within ten to twenty minutes); unknown pages leave no trace, and a batch of
-- only unknown pages counts when they are known. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or ''; half_life_ms; id hash of the batch; msgpack [[host id, page id, path, count], ...].
-- Reply: 'counted', then per item 'accepted', 'duplicate' (the batch was counted before) or 'unknown'.

local MOST_REQUESTS = 1e15  -- still an integer in double precision

local function count_requests(key, id, count, now, half_life_ms)
  local kept, first_at, updated_at = 0, now, now
  local stored = redis.call('HGET', key, id)
  if stored then kept, first_at, updated_at = struct.unpack('<ddd', stored) end
  kept = kept * 2 ^ (-math.max(0, now - updated_at) / half_life_ms)
  redis.call('HSET', key, id, struct.pack('<ddd', math.min(MOST_REQUESTS, kept + count), first_at, now))
end

register('requests', function(keys, args)
  local shard = keys[1]
  local now, raw, offset, stale = enter(shard, args[1])
  local half_life_ms, batch = tonumber(args[2]), args[3]
  local reply, hosts, repeated = {'counted'}, {}, nil
  for _, item in ipairs(cmsgpack.unpack(args[4])) do
    local hid, wanted_id, path, count = unpack(item)
    if hosts[hid] == nil then hosts[hid] = load_host(shard, hid) or false end
    local host, word, id, bin, record = hosts[hid], 'unknown', nil, nil, nil
    if host then id, bin, record = find_page(shard, host, wanted_id, path) end
    if record then
      if repeated == nil then repeated = is_repeat(shard, batch, now) end
      word = repeated and 'duplicate' or 'accepted'
      if not repeated then
        count_requests(requests_key(shard, hid, bin), id, count, now, half_life_ms)
        redis.call('SADD', shard .. ':dirty', hid)
      end
    end
    reply[#reply + 1] = word
  end
  keep_clock(shard .. ':meta', raw, offset, stale)
  return reply
end)
