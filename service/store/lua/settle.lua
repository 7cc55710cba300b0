-- settle: closes what `grant` opened: keeps answers for retries, follows the price, takes unused slots back. Where
-- only the price is to be followed the next `grant` does it, if one comes at once.
-- Promise: only slots after which none was granted are taken back. A repeat moves the price a little and counts
-- its pages again, no more.
-- KEYS: the control hash.
-- ARGV: now_ms or ''; the slot that would follow the grant; how many of the last slots were not used; how many
--       pages were handed out, and the values served, as `count_served` (common_pace.lua) takes them;
--       msgpack [[request id, answer or ''], ...].
-- Reply: 'settled'.

register('settle', function(keys, args)
  local control = keys[1]
  local stored = read_control(control)
  local now = clock_of(stored, args[1])
  local pace, answers = pace_of(stored, now), {}
  pace.slot = pace.stored_slot
  if math.abs(pace.slot - tonumber(args[2])) < pace.gap_ms / 2 then
    pace.slot = pace.slot - tonumber(args[3]) * pace.gap_ms
  end
  count_served(pace, tonumber(args[4]), args[5])
  write_pace(control, pace)
  for _, request in ipairs(cmsgpack.unpack(args[6])) do
    if request[2] == '' then forget_answer(control, request[1], now) else append(answers, unpack(request)) end
  end
  keep_answers(control, answers, now)
  return {'settled'}
end)
