-- set_policy: changes what the operator chose of the policy.
-- Promise: what is not named stays; the version moves only when something changes. Where pages get another
-- value, the price in terms of the old one is forgotten. Safe to repeat.
-- KEYS: the control hash.
-- ARGV: expected version or '' for any; then pairs of field ('explore', 'floor', 'policy', 'objective') and value.
-- Reply: 'set' or 'moved' (the version was not the expected one), then explore, floor, policy, objective (''
--        where never set) and version.

local FIRST = {policy = 'ncis', objective = 'freshness'}  -- before anybody chose

register('set_policy', function(keys, args)
  local control, expected, word = keys[1], args[1], 'set'
  local version = tonumber(redis.call('HGET', control, 'policy_version')) or 0
  if expected ~= '' and tonumber(expected) ~= version then
    word = 'moved'
  else
    local changed = false
    for at = 2, #args, 2 do
      if (redis.call('HGET', control, args[at]) or FIRST[args[at]]) ~= args[at + 1] then
        redis.call('HSET', control, args[at], args[at + 1])
        changed = true
        if args[at] == 'policy' or args[at] == 'objective' then
          redis.call('HDEL', control, 'price', 'picks', 'slack', 'lift')
          redis.call('HSET', control, 'priced', '')
        end
      end
    end
    if changed then version = redis.call('HINCRBY', control, 'policy_version', 1) end
  end
  local reply = {word}
  for _, value in ipairs(redis.call('HMGET', control, 'explore', 'floor', 'policy', 'objective')) do
    reply[#reply + 1] = value or ''
  end
  reply[#reply + 1] = tostring(version)
  return reply
end)
