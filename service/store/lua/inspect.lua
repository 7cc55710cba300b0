-- inspect: everything that is known of one page.
-- Promise: reads only, and one moment of it.
-- KEYS: the shard.
-- ARGV: now_ms or ''; host id; page id; path.
-- Reply: 'page', now_ms, page id, record, anchor (now_ms of a page never crawled), due score or '', lease expiry or '', hold end or '',
--        parked at or '', host rests until or ''; or 'unknown'.

register('inspect', function(keys, args)
  local shard, hid = keys[1], args[2]
  local now = clock(shard .. ':meta', args[1])
  local host = load_host(shard, hid)
  if not host then return {'unknown'} end
  local id, bin, record = find_page(shard, host, tonumber(args[3]), args[4])
  if not record then return {'unknown'} end
  local member = member_of(hid, id)
  record = as_leased(record, redis.call('HGET', shard .. ':tokens', member))
  return {'page', string.format('%.3f', now), string.format('%d', id), record,
    redis.call('ZSCORE', anchor_key(shard, hid, bin), id) or string.format('%.3f', now),
    redis.call('ZSCORE', due_key(shard, hid, bin), id) or '',
    redis.call('ZSCORE', shard .. ':leases', member) or '',
    redis.call('ZSCORE', shard .. ':held', member) or '',
    redis.call('ZSCORE', shard .. ':parked', member) or '',
    host.rest_until > now and string.format('%.0f', host.rest_until) or ''}
end, {'no-writes'})
