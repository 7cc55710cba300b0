-- Shared by every function of the library, after common.lua: hosts as they are kept, one packed value each in a
-- hash of the shard, so that one command reads or writes many. Defines only locals.

-- rest_until, price | bins, pages | delay_ms (-1: as everywhere), gap_ms | paused_until, busy_until | strikes, bytes
-- of weights. Behind it: κ per source where the host hears of several ('<Bf' each), name. Instants in ms.
local HOST = '<I6dI4I4ddI6I6BI2'
local HOST_SIZE, SERVED_SIZE = 53, 14  -- SERVED: rest_until and price, which a lease moves
local LATEST = 2 ^ 48 - 1  -- instant that fits

-- Whoever opens a host may change it: what was remembered of it and of its shard is read again.
local function touch(shard, hid)
  for _, list in pairs(shortlists) do list.hosts[hid] = nil end
  if notes[shard] then notes[shard].wake = nil end
end

local function unpack_host(hid, raw)
  local rest_until, price, bins, pages, delay_ms, gap_ms, paused_until, busy_until, strikes, size =
    fields_of(HOST, raw)
  return {hid = hid, rest_until = rest_until, price = price, bins = bins, pages = pages,
    delay_ms = delay_ms >= 0 and delay_ms or nil, gap_ms = gap_ms, paused_until = paused_until,
    busy_until = busy_until, strikes = strikes, weights = size > 0 and sub(raw, HOST_SIZE + 1, HOST_SIZE + size) or '',
    name = sub(raw, HOST_SIZE + size + 1)}
end

local function pack_host(host)
  return struct.pack(HOST, host.rest_until, host.price, host.bins, host.pages, host.delay_ms or -1, host.gap_ms,
    host.paused_until, host.busy_until, math.min(255, host.strikes), #host.weights) .. host.weights .. host.name
end

local function new_host(hid, name)
  return {hid = hid, is_new = true, rest_until = 0, price = 0, bins = 1, pages = 0, gap_ms = 0, paused_until = 0,
    busy_until = 0, strikes = 0, weights = '', name = name}
end

local function load_host(shard, hid)
  local raw = redis.call('HGET', shard .. ':hosts', hid)
  touch(shard, hid)
  return raw and unpack_host(hid, raw) or nil
end

-- The hosts of many items, whose first field is a host id: by that id; false where there is none.
local function load_hosts(shard, items)
  local hids, hosts = {}, {}
  for _, item in ipairs(items) do
    if hosts[item[1]] == nil then
      hosts[item[1]] = false
      hids[#hids + 1] = item[1]
    end
  end
  if #hids == 0 then return hosts end
  for at, raw in ipairs(redis_call('HMGET', shard .. ':hosts', unpack(hids))) do
    touch(shard, hids[at])
    if raw then hosts[hids[at]] = unpack_host(hids[at], raw) end
  end
  return hosts
end

local function keep_host(shard, host)
  redis.call('HSET', shard .. ':hosts', host.hid, pack_host(host))
end

-- The least time between two leases of the host; `default_ms` where the operator has set none.
local function host_rest_ms(host, default_ms) return math.max(host.delay_ms or default_ms, host.gap_ms) end
