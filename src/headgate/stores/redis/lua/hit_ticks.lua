-- As hit.lua, for a paced limit whose unit does not take whole microseconds. Lengths of time are
-- two numbers: microseconds, and ticks, of which a microsecond has p.
--
-- KEYS   the counters; one that is named twice is asked twice
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2, 3: from wholly used to as new: microseconds, ticks   4: p
--        5: the suffix that counters of this limit have
--        6: the quota   7: microseconds of p units   8, 9: the time of a unit: microseconds, ticks
--        then, if the hits are not all single ones of one unit, for each counter:
--        microseconds and ticks of one hit, how many hits, their cost in units
-- reply  now, and for each counter the ticks that were in use before, exact as the whole span is
--        less than 2^53 of them; or a list as take.lua's, or an error

--@ clock failures gcra slowly

local format, sub = string.format, string.sub
local span_w, span_f, p, suffix = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local cost_w, cost_f, times, cost = tonumber(ARGV[8]), tonumber(ARGV[9]), 1, 1
local last_w = now + span_w
local reply = { now }

-- The instant `value` holds, if it is one of this limit's alone.
local function known(value)
  if not value then return now, 0 end
  local n = #suffix
  if type(value) == 'string' and sub(value, 17, 16 + n) == suffix then
    local w, f = tonumber(sub(value, 1, 16)), tonumber(sub(value, 17 + n))
    if f and w < now then return now, 0 end
    if f and gcra_within(w, f, last_w, span_f) then return w, f end
  end
end

-- The instant after as many of `times` hits as fit, and how many those are.
local function after(w, f)
  for taken = 0, times do
    local next_w, next_f = gcra_add(w, f, cost_w, cost_f, p)
    if taken == times or not gcra_within(next_w, next_f, last_w, span_f) then
      return w, f, taken
    end
    w, f = next_w, next_f
  end
end

for i, key in ipairs(KEYS) do
  if #ARGV > 9 then
    local at = 4 * i + 6
    cost_w, cost_f = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    times, cost = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  end
  local value = redis.pcall('GET', key)
  local w, f = known(value)
  if w then
    reply[i + 1] = (w - now) * p + f
    local new_w, new_f, taken = after(w, f)
    if taken > 0 then
      local text = format('%016.0f%s%.0f', new_w, suffix, new_f)
      local set = redis.pcall('SET', key, text, 'PX', math.ceil((new_w + 1 - now) / 1000) + slack)
      if set.err then return (failure(set)) end  -- the server takes no writes: nothing was charged
    end
  else
    local reported, is_for_all = value, false
    if type(value) == 'string' then
      local done
      done, reported = pcall(slowly, { key = key, suffix = suffix, quota = tonumber(ARGV[6]),
        q = tonumber(ARGV[7]), p = p, span_w = span_w, span_f = span_f, cost_w = cost_w,
        cost_f = cost_f, cost = cost }, times)
      if not done then reported, is_for_all = failure(reported) end
    end
    if is_for_all then return reported end
    reply[i + 1] = reported
  end
end
return reply
