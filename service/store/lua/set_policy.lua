-- set_policy: changes what the operator chose of the policy.
-- Promise: what is not named stays; the version moves only when something changes. Where pages get another
-- value, the price in terms of the old one is forgotten. Safe to repeat.
-- KEYS: the control hash.
-- ARGV: now_ms or ''; who changes it; expected version or '' for any; then pairs of field ('explore', 'floor',
--       'policy', 'objective') and value.
-- Reply: 'set' or 'moved' (the version was not the expected one), then explore, floor, policy, objective (''
--        where never set) and version.

local FIRST = {policy = 'ncis', objective = 'freshness', explore = '0.02', floor = '0.0'}  -- before anybody chose

register('set_policy', function(keys, args)
  local control, expected, word = keys[1], args[3], 'set'
  local now, raw, offset, stale = clock(control, args[1])
  local version = tonumber(redis.call('HGET', control, 'policy_version')) or 0
  if expected ~= '' and tonumber(expected) ~= version then
    word = 'moved'
  else
    local old, new = {}, {}
    for at = 4, #args, 2 do
      local field, value = args[at], args[at + 1]
      local was = redis.call('HGET', control, field) or FIRST[field]
      if was ~= value then
        redis.call('HSET', control, field, value)
        old[field], new[field] = was, value
        if field == 'policy' or field == 'objective' then
          redis.call('HDEL', control, 'price', 'picks', 'slack', 'lift')
          redis.call('HSET', control, 'priced', '')
        end
      end
    end
    if next(new) then
      version = redis.call('HINCRBY', control, 'policy_version', 1)
      note_change(control, now, args[2], 'policy', '', old, new)
    end
  end
  keep_clock(control, raw, offset, stale)
  local reply = {word}
  for _, value in ipairs(redis.call('HMGET', control, 'explore', 'floor', 'policy', 'objective')) do
    reply[#reply + 1] = value or ''
  end
  reply[#reply + 1] = tostring(version)
  return reply
end)
