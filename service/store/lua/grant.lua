-- grant: sets slots aside for the requests that wait in one API process (in a cluster; `lease` fills them).
-- Promise: a slot is granted once, slots are 1/bandwidth apart and never caught up; the same request id within
-- a minute gets the answer it got, and none while its first try is under way.
-- KEYS: the control hash.
-- ARGV: now_ms or ''; lookahead_ms; how many pages were handed out that nobody has settled, and the values served, as
--       `count_served` (common_pace.lua) takes them; the requests in the order of arrival, as `open_requests`
--       (common_pace.lua) takes them.
-- Reply: why somebody gets nothing ('pace', 'paused'); now_ms; milliseconds until asking again may help; the
--        first slot; gap_ms; msgpack [slots of request 1, ..., slots for those who may come]; then per request the answer
--        it got, or ''.

local UNDER_WAY_MS = 10000  -- longer than tries take as a rule; after which a try that was never settled may be repeated

register('grant', function(keys, args)
  local control = keys[1]
  local stored = read_control(control)
  local now, raw, offset, stale = clock_of(stored, args[1])
  local unsettled = tonumber(args[3])
  local asked, pace = open_requests(control, args, 5, now), pace_of(stored, now)
  local shares, count, more, first = {}, 0, 0, pace.slot
  if unsettled > 0 then count_served(pace, unsettled, args[4]) end
  if asked.total + asked.ahead > 0 and (pace.is_open or asked.goes_on and pace.gap_ms > 0) then
    shares, count, more = share_slots(asked, pace, now, tonumber(args[2]))
    pace.slot = first + (count + more) * pace.gap_ms
    pace.retry_ms = pace.slot - GRACE_MS - now
  else
    pace.slot = pace.stored_slot
  end
  if count + more > 0 or unsettled > 0 then write_pace(control, pace) end
  local tries = {}
  for at = 1, #asked.wanted do
    shares[at] = shares[at] or 0
    if asked.wanted[at] > 0 and asked.ids[at] then
      if shares[at] > 0 then
        append(tries, asked.ids[at], under_way(now + UNDER_WAY_MS))
      elseif asked.on[at] then
        append(tries, asked.ids[at], NOTHING)
      end
    end
  end
  shares[#asked.wanted + 1] = more
  keep_answers(control, tries, now)
  keep_clock(control, raw, offset, stale)
  return {pace.reason, string.format('%.3f', now), string.format('%.3f', math.max(0, pace.retry_ms)),
    string.format('%.6f', first), string.format('%.17g', pace.gap_ms), cmsgpack.pack(shares), unpack(asked.answers)}
end)
