-- set_policy: changes what the operator chose of the policy.
-- Promise: what is not named stays; the version moves only when something changes. Safe to repeat.
-- KEYS: the control hash.
-- ARGV: expected version or '' for any; then pairs of field ('explore', 'floor') and value.
-- Reply: 'set' or 'moved' (the version was not the expected one), then explore, floor ('' where never set)
--        and version.

register('set_policy', function(keys, args)
  local control, expected, word = keys[1], args[1], 'set'
  local version = tonumber(redis.call('HGET', control, 'policy_version')) or 0
  if expected ~= '' and tonumber(expected) ~= version then
    word = 'moved'
  else
    local changed = false
    for at = 2, #args, 2 do
      if redis.call('HGET', control, args[at]) ~= args[at + 1] then
        redis.call('HSET', control, args[at], args[at + 1])
        changed = true
      end
    end
    if changed then version = redis.call('HINCRBY', control, 'policy_version', 1) end
  end
  local stored = redis.call('HMGET', control, 'explore', 'floor')
  return {word, stored[1] or '', stored[2] or '', tostring(version)}
end)
