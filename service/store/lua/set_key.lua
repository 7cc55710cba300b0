-- set_key: keeps an API key, or revokes one.
-- Promise: a change leaves a note of who made it. Safe to repeat.
-- KEYS: the control hash.
-- ARGV: who changes it; the key's digest; how many characters of that are its id; JSON {name, role, created_at}, or ''
--       to revoke.
-- Reply: 'set', or 'unknown' where there is none to revoke.

local function shown(entry)
  if not entry then return {} end
  local is_read, key = pcall(cjson.decode, entry)  -- a name an earlier release took may be no text
  return is_read and {name = key.name, role = key.role} or {}
end

register('set_key', function(keys, args)
  local control, actor, digest, entry = keys[1], args[1], args[2], args[4] ~= '' and args[4]
  local time = redis.call('TIME')  -- the scheduler's clock, which may be ahead of it, is nobody's business here
  local place = control .. ':keys'
  local before = redis.call('HGET', place, digest)
  if not before and not entry then return {'unknown'} end
  if entry then redis.call('HSET', place, digest, entry) else redis.call('HDEL', place, digest) end
  local id, now = digest:sub(1, args[3]), time[1] * 1000 + time[2] / 1000
  if before ~= entry then note_change(control, now, actor, 'key', id, shown(before), shown(entry)) end
  return {'set'}
end, {'allow-oom'})  -- keys can be revoked where a store is full
