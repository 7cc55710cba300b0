-- source: gives a signal source its number within the shard's records.
-- Promise: a name keeps its number for ever; at most 200 names, the rest share 255. Safe to repeat.
-- KEYS: the control hash.
-- ARGV: source names.
-- Reply: 'numbered', then a number per name.

register('source', function(keys, args)
  local key = keys[1] .. ':sources'
  local reply = {'numbered'}
  for _, name in ipairs(args) do
    local number = tonumber(redis.call('HGET', key, name))
    if not number then
      number = redis.call('HLEN', key)
      if number >= 200 then number = 255 else redis.call('HSET', key, name, number) end
    end
    reply[#reply + 1] = number
  end
  return reply
end)
