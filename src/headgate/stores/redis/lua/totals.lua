-- Usage merged from other regions: a hash beside the counter, of `window,total,total of the window
-- before,forgotten at` by origin.

local MOST_ORIGINS = 1000

local function read_told(text)
  local _, _, window, total, before, forgotten = find(text, '^(%-?%d+),(%d+),(%d+),(%d+)$')
  return { window = tonumber(window), total = tonumber(total), before = tonumber(before),
    forgotten = tonumber(forgotten) }
end

-- Make room for one more origin by forgetting some; whether there is.
local function make_room(totals)
  if redis.call('HLEN', totals.key) < MOST_ORIGINS then return true end
  local all = redis.call('HGETALL', totals.key)
  for i = 1, #all, 2 do
    if read_told(all[i + 1]).forgotten <= now then totals.dropped[#totals.dropped + 1] = all[i] end
  end
  return #totals.dropped > 0
end

-- What `origin` has told of the counter `key`; read once, should two checks be of one counter.
local function open_totals(key, origin, opened)
  if opened[key] then return opened[key] end
  local name = beside(key, '<')
  local totals = { key = name, origin = origin, dropped = {} }
  local text = redis.call('HGET', name, origin)
  if text then totals.told = read_told(text) end
  totals.has_room = text or make_room(totals)
  totals.lives = redis.call('PTTL', name)
  opened[key] = totals
  return totals
end

-- Put down the total of a window; how much of it had not been told before.
local function merged(totals, window, total, forgotten)
  local told = totals.told
  if not told or told.forgotten <= now then
    if not totals.has_room then return 0 end
    totals.told = { window = window, total = total, before = 0, forgotten = forgotten }
    totals.changed = true
    return total
  end
  told.forgotten, totals.changed = max(told.forgotten, forgotten), true
  if window > told.window then
    told.before = window == told.window + 1 and told.total or 0
    told.window, told.total = window, 0
  end
  local fresh = 0
  if window == told.window then
    fresh = max(0, total - told.total)
    told.total = told.total + fresh
  elseif window == told.window - 1 then
    fresh = max(0, total - told.before)
    told.before = told.before + fresh
  end
  return fresh
end

local function close_totals(totals)
  if not totals.changed then return end
  totals.changed = false
  local told = totals.told
  if #totals.dropped > 0 then redis.call('HDEL', totals.key, unpack(totals.dropped)) end
  redis.call('HSET', totals.key, totals.origin, format('%.0f,%.0f,%.0f,%.0f', told.window,
    told.total, told.before, told.forgotten))
  redis.call('PEXPIRE', totals.key, max(totals.lives, lasting(min(told.forgotten, FAR))))
end
