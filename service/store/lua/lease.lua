-- lease: leases the pages of one shard that are worth most now, for slots granted elsewhere (in a cluster).
-- Promise: a leased page is out of every sorted set until its outcome or expiry; a host is left alone for its
-- rest; no page worth less than asked for is leased. With no slots it only looks.
-- KEYS: the shard.
-- ARGV: now_ms or ''; packed '<ddddH': lease_ms, lookahead_ms, rest_ms, hold_ms, salt, as for `next`;
--       msgpack [slot_ms, ...];
--       the least worth asked for (a crawl value; pages never crawled or promoted are worth more than any);
--       the instant at which the slots were granted: the clock they are of may have seen other steps than the shard's.
-- Reply: 'plenty' if more pages are due than were looked at, none of them new; 'leased'; or why nothing is left to
--        lease ('politeness', 'no-pages'); milliseconds until asking again may help; which value pages are ranked by;
--        the pages one after the other, packed as `lease` (common_lease.lua) does; msgpack [worth of the next best, ...].

local CANDIDATES = 16  -- pages of this shard looked at, besides one per page wanted
local SHOWN = 64  -- worths of pages that stand ready

-- What the pages of a shortlist that are left are worth, best first.
local function worths_of(list)
  local worths, hosts = {}, list.hosts
  for at = list.first, #list do
    if #worths < SHOWN and hosts[list[at][HOST].hid] then worths[#worths + 1] = list[at][WORTH] end
  end
  return worths
end

register('lease', function(keys, args)
  local meta = keys[1] .. ':meta'
  local now, raw, offset, stale = clock(meta, args[1])
  local lease_ms, _, rest_ms, hold_ms, salt = fields_of('<ddddH', args[2])
  local slots = cmsgpack.unpack(args[3])
  local order = {slots = slots, needed = #slots, lease_ms = lease_ms, rest_ms = rest_ms, hold_ms = hold_ms, salt = salt,
    candidates = CANDIDATES, least = tonumber(args[4]), shift_ms = now - tonumber(args[5])}
  local pages, rested_at, list = fill(keys, now, raw, offset, order)
  local worths = worths_of(list)
  if #worths == 0 and #pages > 0 then  -- a shortlist that is used up says nothing of the shard
    order.slots, order.needed = {}, 0
    _, rested_at, list = fill(keys, now, raw, offset, order)
    worths = worths_of(list)
  end
  keep_clock(meta, raw, offset, stale)
  local word, retry_ms = list.is_plenty and 'plenty' or 'leased', 0
  if #worths == 0 then word, retry_ms = why_nothing(keys, now, rested_at) end
  return {word, string.format('%.3f', retry_ms), note_of(keys[1], now).ranked_by, table.concat(pages),
    cmsgpack.pack(worths)}
end)
