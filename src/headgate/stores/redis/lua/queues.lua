-- The leaky bucket as a queue, as in headgate.algorithms.leaky_queue: the instant at which all that
-- is queued is worked off, and the places in it that were given up, by their beginning.
--
--   queue      Qq,p,w,f,n,since;w:f:units;w:f:units  (a unit takes q/p microseconds)
--
-- n is the quota it was written under: a queue is no longer than n units. One that is longer has
-- `since`, the time of that write, which is 0 otherwise.
--
-- An instant is w microseconds and f ticks of 1/p of one.

local MOST_VACANCIES = 64

build.Q = function()
  local queue = {}

  local function is_before(w, f, than_w, than_f)
    return w < than_w or (w == than_w and f < than_f)
  end

  -- The least number of units that lead from an instant to another, or beyond it: guessed, and then
  -- put right by the few that the guess is off.
  local function units_between(spec, w, f, to_w, to_f)
    if not is_before(w, f, to_w, to_f) then return 0 end
    local units = max(0, floor((to_w - w) / spec.q * spec.p + (to_f - f) / spec.q) - 1)
    if units >= MOST then return MOST end
    local function falls_short(many)
      local at_w, at_f = later(spec, w, f, many)
      return is_before(at_w, at_f, to_w, to_f)
    end
    while units > 0 and not falls_short(units - 1) do units = units - 1 end
    while falls_short(units) do units = units + 1 end
    return units
  end

  local function is_idle(state) return not is_before(now, 0, state.w, state.f) end

  -- The vacancies that have not passed, of each the whole units that have not. One that begins
  -- within the microsecond before now is reported as now.
  local function vacancies_now(spec, state)
    local found = {}
    if is_idle(state) then return found end
    local to_w, to_f = now, 0
    if spec.p > 1 then to_w, to_f = now - 1, 1 end
    for _, one in ipairs(state.vacancies) do
      local gone = units_between(spec, one.w, one.f, to_w, to_f)
      if gone == 0 then
        found[#found + 1] = one
      elseif gone < one.units then
        local w, f = later(spec, one.w, one.f, gone)
        found[#found + 1] = { w = w, f = f, units = one.units - gone }
      end
    end
    return found
  end

  local function is_at(one, w, f) return one and one.w == w and one.f == f end

  -- When so many units have their place, and the number of the vacancy that they get, if any.
  local function place_of(state, units)
    for i, one in ipairs(state.vacancies) do
      if one.units >= units then return one.w, one.f, i end
    end
    if is_idle(state) then return now, 0 end
    return state.w, state.f
  end

  function queue.new() return { w = now, f = 0, vacancies = {}, fresh = true } end

  function queue.writer(text)
    local _, _, q, p, quota = find(text, '^Q(%d+),(%d+),%d+,%d+,(%d+)')
    return { kind = 'Q', q = tonumber(q), p = tonumber(p), quota = tonumber(quota) }
  end

  local function span_of(spec) return scale(spec.quota, spec.q, spec.p) end

  -- A queue that is longer than it can be, or was written in the future of the clock: it gets
  -- shorter by that, and its vacancies are lost.
  local function step_back(spec, state)
    local span_w, span_f = span_of(spec)
    if state.since > 0 then
      if now >= state.since then return end
      state.w, state.since = state.w - (state.since - now), now
    else
      if not is_before(now + span_w, span_f, state.w, state.f) then return end
      state.w, state.f = now + span_w, span_f
    end
    state.vacancies, state.moved = {}, true
  end

  function queue.roll(spec, state)
    step_back(spec, state)
    state.vacancies = vacancies_now(spec, state)
  end

  function queue.read(spec, text)
    local _, _, w, f, since = find(text, '^Q%d+,%d+,(%d+),(%d+),%d+,(%d+)')
    local state = { w = tonumber(w), f = tonumber(f), since = tonumber(since), vacancies = {} }
    for w, f, units in string.gmatch(text, ';(%d+):(%d+):(%d+)') do
      table.insert(state.vacancies, { w = tonumber(w), f = tonumber(f), units = tonumber(units) })
    end
    queue.roll(spec, state)
    return state
  end

  function queue.keeps(spec, old) return spec.q == old.q and spec.p == old.p end

  -- A state of another pace: what was promised stays promised, until the same instant.
  function queue.adopt(spec, state, old)
    local f, rest = scale(state.f, spec.p, old.p)
    local w = state.w
    if rest > 0 then f = f + 1 end
    if f >= spec.p then w, f = w + 1, 0 end
    return { w = w, f = f, vacancies = {} }
  end

  function queue.charge(spec, state, units)
    local w, f, place = place_of(state, units)
    if not place then
      state.w, state.f = later(spec, w, f, units)
      return
    end
    local left = state.vacancies[place].units - units
    table.remove(state.vacancies, place)
    if left > 0 then
      w, f = later(spec, w, f, units)
      table.insert(state.vacancies, place, { w = w, f = f, units = left })
    end
  end

  -- Whether a check fits behind those of this call before it: each is asked, as if it were taken.
  function queue.ask(spec, counter)
    local line = counter.line
    if not line then
      line = { w = counter.state.w, f = counter.state.f, vacancies = {} }
      for i, one in ipairs(counter.state.vacancies) do line.vacancies[i] = one end
      counter.line = line
    end
    local w, f = place_of(line, spec.cost)
    queue.charge(spec, line, spec.cost)
    return spec.cost <= spec.largest and not is_before(spec.patience_w, spec.patience_f, w - now, f)
  end

  -- Nothing comes back: what is past cannot, and the places at the end are those of others.
  function queue.refund() end

  -- Give up the place of so many units at the microsecond `at`, if there is one.
  function queue.cancel(spec, state, at, units)
    if at <= now or units == 0 then return false end
    local until_end = max(units, units_between(spec, at, 0, state.w, state.f))
    local dw, df = time_of(spec, until_end)
    local w, f = state.w - dw, state.f - df
    if f < 0 then w, f = w - 1, f + spec.p end
    if w < at - 1 or (w == at - 1 and f == 0) then return false end
    local end_w, end_f = later(spec, w, f, units)
    local place, all = 1, state.vacancies
    while all[place] and is_before(all[place].w, all[place].f, end_w, end_f) do
      place = place + 1
    end
    local before, after = all[place - 1], all[place]
    if before then
      local before_w, before_f = later(spec, before.w, before.f, before.units)
      if is_before(w, f, before_w, before_f) then return false end
      if before_w == w and before_f == f then
        w, f, units, place = before.w, before.f, before.units + units, place - 1
        table.remove(all, place)
      end
    end
    if is_at(after, end_w, end_f) then
      units = units + after.units
      table.remove(all, place)
      end_w, end_f = later(spec, w, f, units)
    end
    if is_at(state, end_w, end_f) then
      state.w, state.f = w, f
    else
      table.insert(all, place, { w = w, f = f, units = units })
      if #all > MOST_VACANCIES then table.remove(all, 1) end
    end
    return true
  end

  function queue.used(spec, state)
    local units = units_between(spec, now, 0, state.w, state.f)
    for _, one in ipairs(state.vacancies) do units = units - one.units end
    return units
  end

  local function listed(state)
    local parts = { digits(state.w) .. ',' .. digits(state.f) }
    if is_idle(state) then return parts[1] end
    for _, one in ipairs(state.vacancies) do
      parts[#parts + 1] = digits(one.w) .. ':' .. digits(one.f) .. ':' .. digits(one.units)
    end
    return table.concat(parts, ';')
  end

  function queue.write(spec, state)
    local span_w, span_f = span_of(spec)
    local since = is_before(now + span_w, span_f, state.w, state.f) and now or 0
    local head = format(',%.0f,%.0f', spec.quota, since)
    local text = string.gsub(listed(state), '^%d+,%d+', '%0' .. head)
    return 'Q' .. digits(spec.q) .. ',' .. digits(spec.p) .. ',' .. text, state.w + 1
  end

  function queue.report(_, state) return listed(state) end

  return queue
end
