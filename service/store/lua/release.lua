-- release: gives leased pages of one shard back at once.
-- Promise: the page waits again as if it had not been leased, the token is void; where nobody was given the page, the
-- rest its lease began is over, too. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or ''; msgpack [[host id, page id, token, and if nobody was given the page the end of that rest], ...].
-- Reply: 'released', then per item 'released', 'stale' or 'unknown'.

register('release', function(keys, args)
  local shard = keys[1]
  local now, raw, offset, stale = enter(shard, args[1])
  local reply = {'released'}
  for _, item in ipairs(cmsgpack.unpack(args[2])) do
    local hid, wanted_id, token, rest_until = unpack(item)
    local host = load_host(shard, hid)
    local id, _, record
    if host then id, _, record = find_page(shard, host, wanted_id, '') end
    local word = record and 'stale' or 'unknown'
    if record then
      local member = member_of(hid, id)
      local r = unpack_head(as_leased(record, redis.call('HGET', shard .. ':tokens', member)))
      if has(r.flags, LEASED) and r.token == token then
        -- Void, yet no later one is below it.
        redis.call('HSET', shard .. ':tokens', member, struct.pack('<I6', token - token % 65536))
        if host.rest_until == rest_until and rest_until > now then  -- else it rests for another reason
          host.rest_until = max(floor(now), host.paused_until, host.busy_until)
          keep_host(shard, host)
        end
        return_page(shard, hid, id, LEASED, false, now)
        word = 'released'
      end
    end
    reply[#reply + 1] = word
  end
  keep_clock(shard .. ':meta', raw, offset, stale)
  return reply
end)
