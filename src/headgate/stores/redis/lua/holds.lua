-- Open reservations, and records of those that were charged when they expired. They stand behind the
-- text of the counter, each after a bar:
--   expires:amount:lasts:name     it expires without a trace
--   expires:amount:lasts+:name    it is charged when it expires
--   expires:amount:lasts!:name    it has expired and was charged; the record ends `lasts` later

-- Carry out `body`, which sets `now` to other instants, and set it back.
local function at_other_times(body)
  local present = now
  local done, result = pcall(body)
  now = present
  if not done then error(result, 0) end
  return result
end

local function copied(value)
  if type(value) ~= 'table' then return value end
  local copy = {}
  for key, one in pairs(value) do copy[key] = copied(one) end
  return copy
end

local function is_open(hold) return hold.mark ~= '!' end

-- When nothing is left of it, not even a record.
local function gone_at(hold)
  return hold.mark == '' and hold.expires or hold.expires + hold.lasts
end

local function by_expiry(one, other) return one.expires < other.expires end

-- Charge a hold as of the instant at which it expires, and set `now` to that.
local function charge_expired(algorithm, spec, state, hold)
  now = hold.expires
  if algorithm.roll then algorithm.roll(spec, state) end
  algorithm.charge(spec, state, hold.amount)
end

-- What is open or on record in `text`; those of them that are to be charged by now; and whether
-- anything was moved because the clock has stepped back.
local function read_holds(text)
  local holds, expired, moved = {}, {}, false
  for expires, amount, lasts, mark, name in
      string.gmatch(text, '|(%d+):(%d+):(%d+)([+!]?):([^|]*)') do
    local hold = { expires = tonumber(expires), amount = tonumber(amount), lasts = tonumber(lasts),
      mark = mark, name = name }
    local latest = is_open(hold) and now + hold.lasts or now
    if hold.expires > latest then hold.expires, moved = latest, true end
    if hold.expires <= now and mark == '+' then
      hold.mark = '!'
      expired[#expired + 1] = hold
    end
    if gone_at(hold) > now then holds[#holds + 1] = hold end
  end
  table.sort(expired, by_expiry)
  return holds, expired, moved
end

local function written_hold(hold)
  return format('%.0f:%.0f:%.0f%s:%s', hold.expires, hold.amount, hold.lasts, hold.mark, hold.name)
end

local function open_in_order(holds)
  local waiting = {}
  for _, hold in ipairs(holds) do
    if is_open(hold) then waiting[#waiting + 1] = hold end
  end
  table.sort(waiting, by_expiry)
  return waiting
end

-- When `units` fit beside open reservations, none of which is settled before it expires.
local function fits_beside(algorithm, spec, state, units, holds)
  if units == 0 then return now end
  if #holds == 0 then return algorithm.fits_at(spec, state, units) end
  return at_other_times(function()
    local waiting, held, is_copied = open_in_order(holds), 0, false
    for _, hold in ipairs(waiting) do held = held + hold.amount end
    for _, hold in ipairs(waiting) do
      local at = algorithm.fits_at(spec, state, units + held)
      if at and max(now, at) < hold.expires then return max(now, at) end
      held, now = held - hold.amount, hold.expires
      if hold.mark == '+' then
        if not is_copied then state, is_copied = copied(state), true end
        charge_expired(algorithm, spec, state, hold)
      end
    end
    local at = algorithm.fits_at(spec, state, units)
    return at and max(now, at)
  end)
end

local function ends_of(algorithm, spec, state)
  if algorithm.ends then return algorithm.ends(spec, state) end
  local _, ends = algorithm.write(spec, state)
  return ends
end

-- When a counter is as new if all its open reservations expire.
local function as_new_at(algorithm, spec, state, holds)
  local waiting, is_copied = open_in_order(holds), false
  if #waiting == 0 then return ends_of(algorithm, spec, state) end
  return max(waiting[#waiting].expires, at_other_times(function()
    for _, hold in ipairs(waiting) do
      if hold.mark == '+' then
        if not is_copied then state, is_copied = copied(state), true end
        charge_expired(algorithm, spec, state, hold)
      end
    end
    return ends_of(algorithm, spec, state)
  end))
end
