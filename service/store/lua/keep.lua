-- keep: keeps pages that were leased before anybody asked for them as the answers to request ids.
-- Promise: an id gets one page. One that is known gets none here: who sent it is a retry, or its first try is under
-- way, and `next` or `grant` knows more.
-- KEYS: the control hash.
-- ARGV: now_ms or ''; how many; their ids; then the page of each, packed as `lease` (common_lease.lua) does.
-- Reply: 'kept', then per id 1 if it has its page now, else 0.

register('keep', function(keys, args)
  local control, count = keys[1], args[2] + 0
  local stored = read_control(control)
  local now, raw, offset, stale = clock_of(stored, args[1])
  local answers = kept_answers(control, {unpack(args, 3, count + 2)}, now)
  local kept, seen, reply = {}, {}, {'kept'}
  for at = 1, count do
    local id = args[at + 2]
    local is_new = answers[at] == nil and not seen[id]
    seen[id] = true
    if is_new then append(kept, id, args[at + count + 2]) end
    reply[at + 1] = is_new and 1 or 0
  end
  keep_answers(control, kept, now)
  keep_clock(control, raw, offset, stale)
  return reply
end)
