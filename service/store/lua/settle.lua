-- settle: closes what `grant` opened: keeps answers for retries, follows the price, takes unused slots back.
-- Promise: only slots after which none was granted are taken back. A repeat changes the price a little, no more.
-- KEYS: the control hash.
-- ARGV: now_ms or ''; the slot that would follow the grant; how many of the last slots were not used;
--       msgpack [[value served, which value it is], ...]; msgpack [[request id, answer or ''], ...].
-- Reply: 'settled'.

register('settle', function(keys, args)
  local control = keys[1]
  local now = clock(control, args[1])
  local pace = read_pace(control, now)
  local stored = tonumber(redis.call('HGET', control, 'slot'))
  local unused = tonumber(args[3])
  pace.slot = stored
  if math.abs(stored - tonumber(args[2])) < pace.gap_ms / 2 then pace.slot = stored - unused * pace.gap_ms end
  pace.granted = pace.granted - unused
  for _, served in ipairs(cmsgpack.unpack(args[4])) do follow_price(pace, served[1], served[2]) end
  write_pace(control, pace)
  for _, request in ipairs(cmsgpack.unpack(args[5])) do
    if request[2] == '' then
      redis.call('DEL', control .. ':request:' .. request[1])
    else
      keep_answer(control, request[1], request[2])
    end
  end
  return {'settled'}
end)
