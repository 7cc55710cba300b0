-- cursor: keeps how far a sweep of a shard has got, or tells it.
-- Promise: what was kept is told only while the same server process runs, for a scan of hosts goes on in its
-- order alone; a finished sweep leaves nothing to tell.
-- KEYS: the shard.
-- ARGV: what to keep, or '' to be told.
-- Reply: 'kept'; 'begun' and what was kept; or 'none'.

register('cursor', function(keys, args)
  local meta = keys[1] .. ':meta'
  local process = redis.call('INFO', 'server'):match('run_id:(%x+)')
  if args[1] ~= '' then
    redis.call('HSET', meta, 'sweeping', process .. args[1])
    return {'kept'}
  end
  local kept = redis.call('HGET', meta, 'sweeping')
  if kept and kept:sub(1, #process) == process then return {'begun', kept:sub(#process + 1)} end
  return {'none'}
end)
