-- Hits under one paced limit (token bucket, GCRA, leaky bucket) whose unit takes whole microseconds,
-- each for itself, in order.
--
-- KEYS   the counters; one that is named twice is asked twice
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: microseconds from wholly used to as new   3: the suffix that counters of this limit have
--        4: microseconds that a unit takes
--        then, if the hits are not all single ones of one unit, for each counter:
--        microseconds of one hit, how many hits of this length, their cost in units
-- reply  now, and for each counter the microseconds that were in use before;
--        a list as take.lua's if it had to be asked the long way; or an error
--
-- A counter that can take m of n equal hits takes m. What was in use says how many those were.

--@ clock

local KEYS, ARGV, type, tonumber = KEYS, ARGV, type, tonumber
local format, sub, ceil, floor = string.format, string.sub, math.ceil, math.floor
local call, span, suffix, unit = redis.pcall, tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local last, each, cost, times = now + span, #ARGV > 4, unit, 1
local seconds, life = -1, ''  -- most counters of a call live equally long
local reply = { now }

for i = 1, #KEYS do
  local key = KEYS[i]
  local value, before = call('GET', key), now
  if value then
    if type(value) == 'string' and sub(value, 17) == suffix then
      before = tonumber(sub(value, 1, 16))
      if before < now then before = now elseif before > last then before = nil end
    else
      before = nil
    end
  end
  if each then cost, times = tonumber(ARGV[3 * i + 2]), tonumber(ARGV[3 * i + 3]) end
  if before then
    reply[i + 1] = before - now
    local after = before + cost
    if times > 1 then
      local taken = floor((last - before) / cost)
      if taken * cost > last - before then taken = taken - 1 end
      if taken > times then taken = times end
      after = taken > 0 and before + taken * cost or last + 1
    end
    if after <= last then
      local needed = ceil((after - now) / 1000000)
      if needed ~= seconds then
        seconds = needed
        life = format('%.0f', needed + slack / 1000)
      end
      local set = call('SET', key, format('%016.0f', after) .. suffix, 'EX', life)
      if set.err then  -- the server takes no writes: nothing was charged
        --@ failures
        return (failure(set))
      end
    end
  elseif type(value) == 'table' then
    reply[i + 1] = value
  else
    --@ failures slowly
    local spec = { key = key, suffix = suffix, q = unit, p = 1, quota = span / unit, span_w = span,
      span_f = 0, cost_w = cost, cost_f = 0, cost = each and tonumber(ARGV[3 * i + 4]) or 1 }
    local done, reported = pcall(slowly, spec, times)
    if not done then
      local is_for_all
      reported, is_for_all = failure(reported)
      if is_for_all then return reported end
    end
    reply[i + 1] = reported
  end
end
return reply
