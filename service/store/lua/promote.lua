-- promote: pages that should be seen though their value does not ask for it are served next.
-- Promise: only pages that wait are promoted; their anchor and model stay. Safe to repeat.
-- KEYS: the shard.
-- ARGV: msgpack [[host id, page id], ...], the most urgent first; how many more urgent ones went before.
-- Reply: 'promoted', how many.

register('promote', function(keys, args)
  local shard, count = keys[1], 0
  enter(shard)
  local before = tonumber(args[2])
  for rank, item in ipairs(cmsgpack.unpack(args[1])) do
    local hid, id = unpack(item)
    local host = load_host(shard, hid)
    if host then
      local bin = bin_of(id, host.bins)
      local due = tonumber(redis.call('ZSCORE', due_key(shard, hid, bin), id))
      if due and due > -1e15 then
        wait_page(shard, host, bin, id, PROMOTED + before + rank)
        count = count + 1
      end
    end
  end
  return {'promoted', count}
end)
