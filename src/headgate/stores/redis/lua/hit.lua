-- Hits under one paced limit (token bucket, GCRA, leaky bucket), each for itself, in order.
--
-- KEYS   the counters; one that is named twice is asked twice
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2, 3: the span from wholly used to as new: microseconds, and ticks of 1/p microsecond
--        4: p   5: the suffix that counters of this limit have
--        6, 7: how long one hit takes: microseconds and ticks
--        and if the hits are not all single ones of this length, for each counter:
--        microseconds, ticks, how many hits of this length, and their cost in units
--        last but one: quota, last: q (for what the short way does not know)
-- reply  now, and for each counter where it stood before, if later than now: microseconds, and if
--        p > 1 ticks; a list as take.lua's if it had to be asked the long way; or an error
--
-- One that can take m of n equal hits takes m. Where it stood says how many those were.

--@ clock failures

local format, sub, ceil, floor = string.format, string.sub, math.ceil, math.floor
local call, pcall_ = redis.call, redis.pcall
local span_w, span_f, p, suffix = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local cost_w, cost_f = tonumber(ARGV[6]), tonumber(ARGV[7])
local each = #ARGV > 9
local last_w = now + span_w
local reply, n = { now }, 1

-- The long way, for a counter with reservations or one that another limit has written.
local function slowly(key, w, f, times, cost)
  --@ numbers counters log slots general
  local told
  for _ = 1, times do
    local spec = { key = key, kind = 'P', quota = tonumber(ARGV[#ARGV - 1]), cost = cost,
      span_w = span_w, span_f = span_f, cost_w = w, cost_f = f, q = tonumber(ARGV[#ARGV]), p = p,
      suffix = suffix }
    local all, counters, one = ask({ spec })
    if all then charge(spec, counters[1]) end
    close(spec, counters[1])
    told = told or {}
    told[#told + 1] = one
  end
  return told
end

for i = 1, #KEYS do
  local key, times, w, f = KEYS[i], 1, cost_w, cost_f
  if each then
    local at = 4 * i + 4
    w, f, times = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  end
  local value = pcall_('GET', key)
  local tat, part, known = now, 0, true
  if value then
    known = type(value) == 'string'
    if p == 1 then
      known = known and sub(value, 17) == suffix
    else
      known = known and sub(value, 17, 16 + #suffix) == suffix
        and not string.find(value, '|', 17, true)
    end
    if known then
      tat = tonumber(sub(value, 1, 16))
      if tat < now then
        tat = now
      elseif p > 1 then
        part = tonumber(sub(value, 17 + #suffix))
      end
    end
  end
  if known then
    reply[n + 1], n = tat, n + 1
    if p > 1 then reply[n + 1], n = part, n + 1 end
    local after, after_part, taken = tat, part, 0
    if times > 1 and p == 1 then
      taken = floor((last_w - tat) / w)
      if taken * w > last_w - tat then taken = taken - 1 end
      if taken > times then taken = times end
      after = tat + taken * w
    else
      while taken < times do
        local next_w, next_f = after + w, after_part + f
        if next_f >= p then next_w, next_f = next_w + 1, next_f - p end
        if next_w > last_w or (next_w == last_w and next_f > span_f) then break end
        after, after_part, taken = next_w, next_f, taken + 1
      end
    end
    if taken > 0 then
      local text = format('%016.0f', after) .. suffix
      if p > 1 then text = text .. format('%.0f', after_part) end
      local set = pcall_('SET', key, text, 'PX', ceil((after - now + 1) / 1000) + slack)
      if set.err then return set end  -- the server takes no writes at all: nothing was charged
    end
  elseif type(value) == 'table' then
    reply[n + 1], n = value, n + 1
    if p > 1 then reply[n + 1], n = 0, n + 1 end
  else
    local cost = each and tonumber(ARGV[4 * i + 7]) or 1
    local done, told = pcall(slowly, key, w, f, times, cost)
    local is_for_all = false
    if not done then told, is_for_all = failure(told) end
    if is_for_all then return told end
    reply[n + 1], n = told, n + 1
    if p > 1 then reply[n + 1], n = 0, n + 1 end
  end
end
return reply
