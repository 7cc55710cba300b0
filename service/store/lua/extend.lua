-- extend: lets crawlers keep pages of one shard longer.
-- Promise: a lease is only ever moved later, and only by its own token. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or ''; msgpack [[host id, page id, token, duration_ms], ...].
-- Reply: 'extended', then per item the new expiry in ms, or 'stale' or 'unknown'.

register('extend', function(keys, args)
  local shard = keys[1]
  local now, raw, offset, stale = enter(shard, args[1])
  local reply = {'extended'}
  for _, item in ipairs(cmsgpack.unpack(args[2])) do
    local hid, wanted_id, token, duration_ms = unpack(item)
    local host = load_host(shard, hid)
    local id, _, record
    if host then id, _, record = find_page(shard, host, wanted_id, '') end
    local word = record and 'stale' or 'unknown'
    if record then
      local member = member_of(hid, id)
      local r = unpack_head(as_leased(record, redis.call('HGET', shard .. ':tokens', member)))
      if has(r.flags, LEASED) and r.token == token then
        redis.call('ZADD', shard .. ':leases', 'GT', math.floor(now + duration_ms), member)
        word = redis.call('ZSCORE', shard .. ':leases', member)
      end
    end
    reply[#reply + 1] = word
  end
  keep_clock(shard .. ':meta', raw, offset, stale)
  return reply
end)
