-- Usage merged from other regions: a hash beside the counter, of `window,total,total of the window
-- before,forgotten at` by origin.

local MOST_ORIGINS = 1000

local function read_report(text)
  local _, _, window, total, before, forgotten = find(text, '^(%-?%d+),(%d+),(%d+),(%d+)$')
  return { window = tonumber(window), total = tonumber(total), before = tonumber(before),
    forgotten = tonumber(forgotten) }
end

-- Make room for one more origin by forgetting some; whether there is.
local function make_room(totals)
  if redis.call('HLEN', totals.key) < MOST_ORIGINS then return true end
  local all = redis.call('HGETALL', totals.key)
  for i = 1, #all, 2 do
    if read_report(all[i + 1]).forgotten <= now then totals.dropped[#totals.dropped + 1] = all[i] end
  end
  return #totals.dropped > 0
end

-- The report of `origin` on the counter `key`; read once, should two checks be of one counter.
local function open_totals(key, origin, opened)
  if opened[key] then return opened[key] end
  local name = beside(key, '<')
  local totals = { key = name, origin = origin, dropped = {} }
  local text = redis.call('HGET', name, origin)
  if text then totals.report = read_report(text) end
  totals.has_room = text or make_room(totals)
  totals.lives = redis.call('PTTL', name)
  opened[key] = totals
  return totals
end

-- Record the total of a window; return how much of it was not reported before.
local function merged(totals, window, total, forgotten)
  local report = totals.report
  if not report or report.forgotten <= now then
    if not totals.has_room then return 0 end
    totals.report = { window = window, total = total, before = 0, forgotten = forgotten }
    totals.changed = true
    return total
  end
  report.forgotten, totals.changed = max(report.forgotten, forgotten), true
  if window > report.window then
    report.before = window == report.window + 1 and report.total or 0
    report.window, report.total = window, 0
  end
  local fresh = 0
  if window == report.window then
    fresh = max(0, total - report.total)
    report.total = report.total + fresh
  elseif window == report.window - 1 then
    fresh = max(0, total - report.before)
    report.before = report.before + fresh
  end
  return fresh
end

local function close_totals(totals)
  if not totals.changed then return end
  totals.changed = false
  local report = totals.report
  if #totals.dropped > 0 then redis.call('HDEL', totals.key, unpack(totals.dropped)) end
  redis.call('HSET', totals.key, totals.origin, format('%.0f,%.0f,%.0f,%.0f', report.window,
    report.total, report.before, report.forgotten))
  redis.call('PEXPIRE', totals.key, max(totals.lives, lasting(min(report.forgotten, FAR))))
end
