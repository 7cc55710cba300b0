-- signals: counts change signals of one shard and ages their pages by them.
-- Promise: a signal with an id counts once; one without counts once per page, source and window; signals
-- older than the last crawl, or within the source's delay after it, are not counted. Safe to repeat.
-- KEYS: the shard.
-- ARGV: now_ms or ''; window_ms;
--       msgpack [[host id, page id, path, source index, at_ms or -1, id hash or '', delay_ms], ...].
-- Reply: 'counted', then per item 'accepted', 'duplicate', 'stale' (before the last crawl) or 'unknown'.

local MAX_LATE = 64  -- signals remembered for a page on lease

local function is_counted_already(shard, item, id, now, window_ms)
  if item[6] ~= '' then return is_repeat(shard, item[6], now) end
  local stem = item[1] .. ':' .. string.format('%d', id) .. ':' .. item[4] .. ':'
  local window = math.floor(now / window_ms)
  local before = stem .. string.format('%d', window - 1)
  local generation = math.floor(now / GENERATION_MS)
  for back = 0, 1 do  -- a repeat that straddles the edge of a window is still a repeat
    if redis.call('SISMEMBER', shard .. ':seen:' .. string.format('%d', generation - back), before) == 1 then
      return true
    end
  end
  return is_repeat(shard, stem .. string.format('%d', window), now)
end

local function remember_late(shard, member, item, at)
  local kept = redis.call('HGET', shard .. ':late', member) or ''
  if #kept < MAX_LATE * 7 then
    redis.call('HSET', shard .. ':late', member, kept .. struct.pack('<BI6', item[4], math.max(0, math.floor(at))))
  end
end

local function count_signal(shard, host, id, bin, record, item, at, now)
  local r = unpack_head(record)
  local sources, etag, path = unpack_tail(record)
  r.signals = math.min(65535, r.signals + 1)
  sources = count_source(sources, item[4])
  redis.call('HSET', record_key(shard, host.hid, bin), id, pack_head(r) .. pack_tail(sources, etag, path))
  if has(r.flags, LEASED) then remember_late(shard, host.hid .. ':' .. string.format('%d', id), item, at) end
  local weight = r.silent_rate > 0 and weight_of(host, r, item[4]) or 0
  if not has(r.flags, CRAWLED) or (weight == 0 and r.credit_s <= 0) then return end
  local credit_ms = weight > 0 and math.floor(weight / r.silent_rate * 1000) or 0
  local anchor = tonumber(redis.call('ZSCORE', anchor_key(shard, host.hid, bin), id))
  anchor = math.max(anchor - credit_ms, OLDEST_ANCHOR)
  redis.call('ZADD', anchor_key(shard, host.hid, bin), anchor, id)
  if r.interval_s < 0 or r.flags % 8 >= 1 then return end  -- dormant, or not waiting
  if tonumber(redis.call('ZSCORE', due_key(shard, host.hid, bin), id)) < -1e15 then return end  -- promoted
  local due = due_score(r, anchor)
  wait_page(shard, host, bin, id, due, now)
end

register('signals', function(keys, args)
  local shard = keys[1]
  local now, raw, offset, stale = clock(shard .. ':meta', args[1])
  local window_ms = tonumber(args[2])
  local reply, hosts, accepted = {'counted'}, {}, {}
  for _, item in ipairs(cmsgpack.unpack(args[3])) do
    local hid = item[1]
    if hosts[hid] == nil then hosts[hid] = load_host(shard, hid) or false end
    local host, word, id, bin, record = hosts[hid], 'unknown', nil, nil, nil
    if host then id, bin, record = find_page(shard, host, item[2], item[3]) end
    if record then
      local at = item[5] >= 0 and math.min(item[5], now) or now
      local crawled_at = struct.unpack('<I6', record, HISTORY_AT)
      if is_counted_already(shard, item, id, now, window_ms) then
        word = 'duplicate'
      elseif has(record:byte(1), CRAWLED) and (at < crawled_at or now < crawled_at + item[7]) then
        word = 'stale'
      else
        count_signal(shard, host, id, bin, record, item, at, now)
        accepted[item[4]] = (accepted[item[4]] or 0) + 1
        word = 'accepted'
      end
    end
    reply[#reply + 1] = word
  end
  for source, count in pairs(accepted) do redis.call('HINCRBY', shard .. ':counted', source, count) end
  keep_clock(shard .. ':meta', raw, offset, stale)
  seal(shard)
  return reply
end)
