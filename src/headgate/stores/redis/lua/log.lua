-- The sliding window log: a header in the counter's own string, the entries in a list beside it.
--
-- An entry is `t` or `t:units`; it happened at t + offset. What a call drops from the head or adds
-- at the tail is kept aside (`gone`, `added`) and written only if the counter is: a look changes
-- nothing.

-- The name of what stands beside a counter: the part before the first colon has a mark at its end.
local function beside(key, mark)
  return (string.gsub(key, ':', mark .. ':', 1))
end

build.L = function()
  local log = {}
  local CHUNK = 64

  local function entry(text)
    local colon = find(text, ':', 1, true)
    if colon then return tonumber(sub(text, 1, colon - 1)), tonumber(sub(text, colon + 1)) end
    return tonumber(text), 1
  end

  local function written(time, units)
    if units == 1 then return digits(time) end
    return digits(time) .. ':' .. digits(units)
  end

  -- Entry number i (from 1) of those still there: its time and units; nil after the last.
  local function at(state, i)
    local place = state.gone + i
    if place <= state.length then
      local first = place - (place - 1) % CHUNK
      if state.chunk_first ~= first then
        state.chunk_first = first
        state.chunk = redis.call('LRANGE', state.list, first - 1, first + CHUNK - 2)
      end
      local text = state.chunk[place - first + 1]
      if text then
        local time, units = entry(text)
        if place == state.length and state.newest_units then units = state.newest_units end
        if place == state.lowered then units = state.lowered_units end
        return time + state.offset, units
      end
    end
    local more = state.added[place - state.length]
    if more then return more[1] + state.offset, more[2] end
  end

  local function count(state) return state.length + #state.added - state.gone end

  local function add(state, time, units)
    local last = count(state)
    local newest, had
    if state.total > 0 then newest, had = at(state, last) end
    state.total = state.total + units
    if newest ~= time then
      state.added[#state.added + 1] = { time - state.offset, units }
    elseif #state.added > 0 then
      state.added[#state.added][2] = had + units
    else
      state.newest_units = had + units
    end
  end

  -- Let everything that is a window old leave, and debt take its place.
  local function advance(window, state)
    state.high = max(state.high, now)
    local oldest = state.total > 0 and at(state, 1)
    if oldest and state.debt > state.total and state.high - oldest >= 2 * window then
      local rounds = min(divide(state.high - oldest, window) - 1, (divide(state.debt, state.total)))
      state.debt = state.debt - rounds * state.total
      state.offset = state.offset + rounds * window
    end
    while state.total > 0 do
      local time, units = at(state, 1)
      if not time then  -- the list is gone: somebody deleted it
        state.total = 0
        break
      end
      if time + window > state.high then break end
      state.gone = state.gone + 1
      state.total = state.total - units
      local entering = min(units, state.debt)
      if entering > 0 then
        state.debt = state.debt - entering
        add(state, time + window, entering)
      end
    end
  end

  -- Entries in the future of the clock become one entry at now.
  local function step_back(state)
    local units = 0
    while count(state) > 0 do
      local time, had = at(state, count(state))
      if not time or time <= now then break end
      units = units + had
      if #state.added > 0 then
        table.remove(state.added)
      else
        state.length, state.newest_units, state.shorter = state.length - 1, nil, true
      end
    end
    state.high, state.moved = now, state.total > 0
    state.total = state.total - units
    if units > 0 then add(state, now, units) end
  end

  -- When the nth unit from now on (counted from 1) will have left.
  local function departure(spec, state, nth)
    local rounds, place = divide(nth - 1, state.total)
    local last = count(state)
    local time, units = at(state, last)
    if place < state.total - units then
      local i = 1
      time, units = at(state, i)
      while place >= units do
        place, i = place - units, i + 1
        time, units = at(state, i)
      end
    end
    return min(FAR, time + (rounds + 1) * spec.window)
  end

  function log.new(spec)
    return { list = beside(spec.key, '+'), high = now, total = 0, debt = 0, offset = 0, gone = 0,
      length = 0, added = {}, fresh = true, restart = true }
  end

  function log.writer(text)
    local _, _, window, quota = find(text, '^L(%d+),(%d+)')
    return { kind = 'L', window = tonumber(window), quota = tonumber(quota) }
  end

  function log.roll(spec, state)
    if state.high > now then step_back(state) end
    advance(spec.window, state)
  end

  function log.read(spec, text)
    local _, _, high, total, debt, offset = find(text, '^L%d+,%d+,(%d+),(%d+),(%d+),(%d+)')
    local state = { list = beside(spec.key, '+'), high = tonumber(high), total = tonumber(total),
      debt = tonumber(debt), offset = tonumber(offset), gone = 0, added = {} }
    state.length = redis.call('LLEN', state.list)
    log.roll(spec, state)
    return state
  end

  function log.keeps(spec, old, state)
    return spec.window == old.window
      and (spec.quota == old.quota or (state.debt == 0 and state.total <= spec.quota))
  end

  function log.fits(spec, state, units) return state.total + state.debt + units <= spec.quota end

  function log.charge(spec, state, units)
    local room = min(units, max(0, spec.quota - state.total - state.debt))
    if room > 0 then add(state, state.high, room) end
    state.debt = min(MOST, state.debt + units - room)
  end

  function log.refund(_, state, units)
    local from_debt = min(units, state.debt)
    state.debt = state.debt - from_debt
    units = min(units - from_debt, state.total)
    state.total = state.total - units
    while units > 0 do
      local _, newest = at(state, count(state))
      local left = newest - min(units, newest)
      units = units - (newest - left)
      if #state.added > 0 then
        if left > 0 then state.added[#state.added][2] = left else table.remove(state.added) end
      elseif left > 0 then
        state.newest_units = left
      else
        state.length, state.newest_units, state.shorter = state.length - 1, nil, true
      end
    end
  end

  -- Give units back that were charged at `time`, if the entry is still there.
  function log.give_back(spec, state, units, time)
    local from_debt = min(units, state.debt)  -- it would take the place of what is refunded
    state.debt, units = state.debt - from_debt, units - from_debt
    local i = count(state)
    local found, had = at(state, i)
    while found and i > 0 and found > time do
      i = i - 1
      if i > 0 then found, had = at(state, i) end
    end
    if i == 0 or found ~= time then return end
    local taken, place = min(units, had), state.gone + i
    if i == count(state) then
      log.refund(spec, state, taken)
      return
    end
    state.total = state.total - taken
    if place > state.length then
      state.added[place - state.length][2] = had - taken
    else
      state.lowered, state.lowered_units = place, had - taken
    end
  end

  function log.used(_, state) return state.total + state.debt end

  -- When the last unit will have left.
  function log.ends(spec, state)
    return state.total > 0 and departure(spec, state, state.total + state.debt) or now
  end

  function log.write(spec, state)
    local ends, list = log.ends(spec, state), state.list
    if state.restart or state.gone >= state.length then
      redis.call('DEL', list)
    else
      if state.lowered then
        local time = entry(redis.call('LINDEX', list, state.lowered - 1))
        redis.call('LSET', list, state.lowered - 1, written(time, state.lowered_units))
      end
      if state.gone > 0 or state.shorter then
        redis.call('LTRIM', list, state.gone, state.length - 1)
      end
      if state.newest_units then
        local time = entry(redis.call('LINDEX', list, -1))
        redis.call('LSET', list, -1, written(time, state.newest_units))
      end
    end
    for i = max(1, state.gone - state.length + 1), #state.added do
      redis.call('RPUSH', list, written(state.added[i][1], state.added[i][2]))
    end
    redis.call('PEXPIRE', list, lasting(ends))
    return format('L%.0f,%.0f,%.0f,%.0f,%.0f,%.0f', spec.window, spec.quota, state.high,
      state.total, state.debt, state.offset), ends
  end

  -- When `units` fit if nothing is reserved: an instant, or nil if never.
  function log.fits_at(spec, state, units)
    if units > spec.quota then return nil end
    local excess = state.total + state.debt + units - spec.quota
    return excess > 0 and departure(spec, state, excess) or now
  end

  function log.report(spec, state, units, holds)
    local ends = as_new_at(log, spec, state, holds)
    local fits_at = fits_beside(log, spec, state, units, holds)
    return format('%.0f,%.0f,%.0f,%.0f,', state.total, state.debt, state.high, ends)
      .. (fits_at and digits(fits_at) or '')
  end

  return log
end
