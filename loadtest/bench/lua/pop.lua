#!lua name=bench
-- pop: the least a scheduler with leases must do, and nothing else: no pace, no politeness, no values.
-- Promise: each page popped from one sorted set gets a lease with a deadline.
-- KEYS: the sorted set of pages, the hash of leases, the sorted set of deadlines.
-- ARGV: how many pages, the token, the deadline in ms.
-- Reply: the pages.
redis.register_function('pop', function(keys, args)
  local pages = {}
  for at = 1, tonumber(args[1]) do
    local page = redis.call('ZPOPMIN', keys[1])[1]
    if not page then break end
    redis.call('HSET', keys[2], page, args[2])
    redis.call('ZADD', keys[3], args[3], page)
    pages[at] = page
  end
  return pages
end)
