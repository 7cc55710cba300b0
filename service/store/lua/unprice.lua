-- unprice: forgets what hosts were served at, which says nothing once pages have another value.
-- Promise: nothing else of them changes. Safe to repeat.
-- KEYS: the shard.
-- ARGV: host ids.
-- Reply: 'unpriced'.

register('unprice', function(keys, args)
  enter(keys[1])
  for _, hid in ipairs(args) do
    local host = load_host(keys[1], hid)
    if host then
      host.price = 0
      keep_host(keys[1], host)
    end
  end
  return {'unpriced'}
end)
