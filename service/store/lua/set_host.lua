-- set_host: an operator's rules for one host.
-- Promise: from the answer on, no page of the host is leased against the new rules. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or ''; host id; host name; default_rest_ms; how far ahead leases may lie, in ms; msgpack {delay_ms
--       (below 0: the default again), gap_ms, paused_until (0: no pause), busy_until (0: the rest that an outcome asked
--       for ends)}, only what changes; who changes it.
-- Reply: 'set'.

-- The rest the last lease began, if one did, becomes as long as rests are now. Where that lease is not known, as it
-- began no rest or the host rests for another reason, it may lie as far ahead as leases may.
local function renew_rest(host, before, rest_ms, latest)
  if before > 0 and host.rest_until > max(host.busy_until, host.paused_until) then
    host.rest_until = min(floor(host.rest_until - before + rest_ms), LATEST)
  elseif rest_ms > before and (before == 0 and not host.is_new or host.rest_until > 0) then
    rest_host(host, latest + rest_ms)
  end
end

-- Sets an operator's rules of a host; those that changed, as they were and as they are.
local function set_rules(host, changes)
  local old, new = {}, {}
  for field, value in pairs(changes) do
    local before = host[field]
    if field == 'paused_until' then value = floor(value) end  -- as it is kept
    host[field] = min(max(value, 0), LATEST)
    if field == 'delay_ms' and value < 0 then host[field] = nil end
    if host[field] ~= before then old[field], new[field] = before or cjson.null, host[field] or cjson.null end
  end
  return old, new
end

register('set_host', function(keys, args)
  local shard, hid, default_rest_ms = keys[1], args[2], tonumber(args[4])
  local now, raw, offset, stale = enter(shard, args[1])
  local changes = cmsgpack.unpack(args[6])
  local host = load_host(shard, hid) or new_host(hid, args[3])
  local before, paused_before, busy_before = host_rest_ms(host, default_rest_ms), host.paused_until, host.busy_until
  if busy_before <= now then changes.busy_until = nil end  -- over already
  local old, new = set_rules(host, changes)
  local rest_ms = host_rest_ms(host, default_rest_ms)
  -- The rest it has begun, perhaps with a slot that lies ahead, holds also if the pause is taken back.
  if paused_before <= now and host.paused_until > now then host.busy_until = math.max(host.busy_until, host.rest_until) end
  if busy_before > now and host.busy_until == 0 or paused_before > now and host.paused_until < paused_before then
    -- How much was left of the rest when the other began is not known: it rests anew.
    host.rest_until, before = 0, 0
    rest_host(host, now)
  end
  renew_rest(host, before, rest_ms, now + args[5])
  local until_ms = math.max(host.paused_until, host.busy_until)
  if until_ms > now then rest_host(host, until_ms) end
  keep_host(shard, host)
  index_host(shard, host, now)
  if next(new) then note_change(shard, now, args[7], 'host', host.name, old, new) end
  keep_clock(shard .. ':meta', raw, offset, stale)
  return {'set'}
end)
