-- The arithmetic of each algorithm, as in headgate.algorithms, on the microseconds of `now`.
--
-- A counter is one string, with open reservations behind it (see docs/redis-layout.md):
--   paced      TTTTTTTTTTTTTTTT, the unit and the quota n: mmk,n or /q,n or /q/p/n/f; in debt @since
--   fixed      Fwindow,quota,index,count    and ,start if that is not the index's
--   counter    Cwindow,subwindows,quota,index,count,count,...      (oldest first)
--   log        Lwindow,quota,high,total,debt,offset    and a list beside it, of t or t:units
--   queue      Qq,p,w,f;w:f:units;...                                     (see queues.lua)
--   each       |expires:amount:lasts:name|expires:amount:lasts:name           (see holds.lua)
--
-- A `spec` is the limit and the cost of a check: {kind, quota, cost, ...}. Each algorithm offers
--   new(spec)                  the state of an untouched counter
--   read(spec, text)           the state in `text`, written under `spec`, as of now
--   roll(spec, state)          move a state of an earlier instant on to now, unless it stands for all
--   writer(text)               the spec under which `text` was written
--   keeps(spec, old)           true if a state under `old` is one under `spec` as it is
--   fits(spec, state, units)   true if so many units fit; or, for queues,
--   ask(spec, counter)         true if the spec's cost fits behind the costs asked before
--   charge, refund             change the state
--   give_back(spec, state, units, since)   undo a charge of that instant, as far as it still counts
--   used(spec, state)          units in use, rounded up
--   write(spec, state)         the text, and the time at which the state is as new
--   report(spec, state, units)   the state from which the client computes all figures

local UNITS = { [10] = 108, [20] = 125, [30] = 144, [40] = 216, [50] = 288, [60] = 375, [70] = 432,
  [80] = 625, [90] = 864 }

local build = {}

--@ gcra

-- How long so many units take: whole microseconds, and ticks of 1/p of one.
local function time_of(spec, units)
  if units == spec.cost then return spec.cost_w, spec.cost_f end
  return scale(units, spec.q, spec.p)
end

local function later(spec, w, f, units)
  local cost_w, cost_f = time_of(spec, units)
  w, f = gcra_add(w, f, cost_w, cost_f, spec.p)
  if w >= FAR then return FAR, 0 end
  return w, f
end

build.P = function()
  local paced = {}

  local function in_use(state)
    if state.w < now then return 0, 0 end
    return state.w - now, state.f
  end

  function paced.new(spec) return { w = now, f = 0, fresh = true } end

  local function is_beyond(spec, w, f)
    return not gcra_within(w, f, now + spec.span_w, spec.span_f)
  end

  function paced.writer(text)
    local rest = sub(text, 17)
    local _, _, suffix, mantissa, power, quota = find(rest, '^((%d%d)(%d),(%d+))')
    local q, p = nil, 1
    if quota then
      mantissa = tonumber(mantissa)
      q = (UNITS[mantissa] or mantissa) * 10 ^ power
    else
      _, _, suffix, q, quota = find(rest, '^(/(%d+),(%d+))')
      if not quota then _, _, suffix, q, p, quota = find(rest, '^(/(%d+)/(%d+)/(%d+)/)') end
    end
    local spec = { kind = 'P', q = tonumber(q), p = tonumber(p), quota = tonumber(quota),
      suffix = suffix }
    spec.span_w, spec.span_f = scale(spec.quota, spec.q, spec.p)
    return spec
  end

  -- An instant beyond the span shows that the clock has stepped back: all is in use then. One of
  -- debt has the time of its writing behind an @, and moves back with the clock.
  function paced.read(spec, text)
    local _, _, f, since = find(sub(text, 17 + #spec.suffix), '^(%d*)@?(%d*)$')
    local state = { w = tonumber(sub(text, 1, 16)), f = tonumber(f) or 0 }
    since = tonumber(since)
    if since then
      if now < since then state.w, state.moved = state.w - (since - now), true end
    elseif is_beyond(spec, state.w, state.f) then
      state.w, state.f, state.moved = now + spec.span_w, spec.span_f, true
    end
    return state
  end

  function paced.keeps(spec, old) return spec.suffix == old.suffix end

  -- A state of another pace: what is in use stays in use, in units.
  function paced.adopt(spec, state, old)
    local w, f = in_use(state)
    local ticks = w * old.p + f
    local whole, rest = scale(ticks, spec.q, old.q)
    if ticks >= EXACT or whole >= FAR then
      whole, rest = ceil((w + 1) * (old.p / old.q) * (spec.q / spec.p)), 0
      return { w = min(FAR, now + whole), f = 0 }
    end
    if rest > 0 then whole = whole + 1 end
    local micros, ticks_left = divide(whole, spec.p)
    return { w = min(FAR, now + micros), f = ticks_left }
  end

  function paced.fits(spec, state, units)
    if units > spec.quota then return false end
    local w, f = in_use(state)
    w, f = later(spec, w, f, units)
    return gcra_within(w, f, spec.span_w, spec.span_f)
  end

  function paced.charge(spec, state, units)
    if state.w < now then state.w, state.f = now, 0 end
    state.w, state.f = later(spec, state.w, state.f, units)
  end

  function paced.refund(spec, state, units)
    local dw, df = time_of(spec, units)
    local w, f = state.w - dw, state.f - df
    if f < 0 then w, f = w - 1, f + spec.p end
    if w < now then w, f = now, 0 end
    state.w, state.f = w, f
  end

  -- What has been refilled since is not given back.
  function paced.give_back(spec, state, units, since)
    local refilled, rest = scale(max(0, now - since), spec.p, spec.q)
    if rest > 0 then refilled = refilled + 1 end
    if units > refilled then paced.refund(spec, state, units - refilled) end
  end

  function paced.used(spec, state)
    local w, f = in_use(state)
    local ticks = w * spec.p + f
    if ticks < EXACT then return divide_up(ticks, spec.q) end
    return ceil(w / (spec.q / spec.p))
  end

  function paced.write(spec, state)
    local text = format('%016.0f', state.w) .. spec.suffix
    if spec.p > 1 then text = text .. digits(state.f) end
    if is_beyond(spec, state.w, state.f) then text = text .. '@' .. digits(now) end
    return text, state.w + 1
  end

  function paced.report(spec, state) return digits(state.w) .. ',' .. digits(state.f) end

  return paced
end

build.F = function()
  local fixed = {}

  local function aligned(spec) return divide(now, spec.window) * spec.window end

  function fixed.new(spec) return { start = aligned(spec), count = 0, fresh = true } end

  function fixed.writer(text)
    local _, _, window, quota = find(text, '^F(%d+),(%d+)')
    return { kind = 'F', window = tonumber(window), quota = tonumber(quota) }
  end

  -- The window in force. One that begins works off a quota of what the one before held too much.
  -- One that starts in the future of the clock starts now, and lasts for a window.
  function fixed.roll(spec, state)
    if now < state.start then
      state.moved = state.count > 0
      state.start = state.moved and now or aligned(spec)
    elseif now >= state.start + spec.window then
      local passed = divide(now, spec.window) - divide(state.start, spec.window)
      state.start, state.count = aligned(spec), max(0, state.count - spec.quota * passed)
    end
  end

  function fixed.read(spec, text)
    local _, _, index, count, start = find(text, '^F%d+,%d+,(%d+),(%d+),?(%d*)')
    local state = { start = tonumber(start) or index * spec.window, count = tonumber(count) }
    fixed.roll(spec, state)
    return state
  end

  function fixed.keeps(spec, old) return spec.window == old.window end

  function fixed.fits(spec, state, units) return state.count + units <= spec.quota end

  function fixed.charge(_, state, units) state.count = min(MOST, state.count + units) end

  function fixed.refund(_, state, units) state.count = max(0, state.count - units) end

  function fixed.give_back(spec, state, units, since)
    if since >= state.start then fixed.refund(spec, state, units) end
  end

  function fixed.used(_, state) return state.count end

  function fixed.write(spec, state)
    local ends, index = now, divide(state.start, spec.window)
    local windows = divide_up(state.count, spec.quota)
    if windows == 1 then ends = state.start + spec.window end
    if windows > 1 then ends = (index + windows) * spec.window end
    local text = format('F%.0f,%.0f,%.0f,%.0f', spec.window, spec.quota, index, state.count)
    if state.start ~= index * spec.window then text = text .. ',' .. digits(state.start) end
    return text, ends
  end

  function fixed.report(_, state) return digits(state.start) .. ',' .. digits(state.count) end

  return fixed
end

build.C = function()
  local cells = {}

  -- The number of the cell at an instant, and how far it has come, in microseconds / subwindows.
  function cells.place(spec, at)
    local windows, into = divide(at, spec.window)
    local ahead, elapsed = divide(into * spec.subwindows, spec.window)
    return windows * spec.subwindows + ahead, elapsed
  end

  local function younger(counts)
    local total = 0
    for i = 2, #counts do total = total + counts[i] end
    return total
  end

  -- Move on by `steps` cells, of which nothing is taken along: the oldest go, empty ones come.
  local function shift(counts, steps)
    local cells_in_all = #counts
    for i = 1, cells_in_all do counts[i] = counts[i + steps] or 0 end
  end

  -- Move on to cell `to`, taking along what does not fit into a window of finished cells. Where all
  -- fits nothing is ever taken along.
  local function move_on(spec, state, to)
    local counts, quota = state.counts, spec.quota
    local last = #counts
    while state.index < to do
      local excess = younger(counts) - quota
      if excess <= 0 then
        shift(counts, to - state.index)
        state.index = to
        return
      end
      state.index = state.index + 1
      local windows = min(divide(to - state.index, spec.subwindows), (divide(excess, quota)))
      state.index = state.index + windows * spec.subwindows
      shift(counts, 1)
      local left = excess  -- of the latest first: older than the last if the limit was lowered
      for i = last - 1, 1, -1 do
        local taken = min(left, counts[i])
        counts[i], left = counts[i] - taken, left - taken
        if left == 0 then break end
      end
      counts[last] = excess - windows * quota
    end
  end

  -- Move to an earlier cell: what lies in the future of the clock is added to that cell. Of the
  -- oldest only a part counted, so no more of it than fits is kept.
  local function step_back(state, quota, to)
    local old, steps, last = state.counts, state.index - to, #state.counts
    old[1] = min(old[1], max(0, quota - younger(old)))
    local counts = {}
    for i = 1, last do counts[i] = 0 end
    for i = 1, last do
      local place = min(last, i + steps)
      counts[place] = counts[place] + old[i]
      state.moved = state.moved or old[i] > 0
    end
    state.counts, state.index = counts, to
  end

  function cells.new(spec)
    local counts = {}
    for i = 1, spec.subwindows + 1 do counts[i] = 0 end
    local index, elapsed = cells.place(spec, now)
    return { index = index, elapsed = elapsed, counts = counts, fresh = true }
  end

  function cells.writer(text)
    local _, _, window, subwindows, quota = find(text, '^C(%d+),(%d+),(%d+)')
    return { kind = 'C', window = tonumber(window), subwindows = tonumber(subwindows),
      quota = tonumber(quota) }
  end

  function cells.roll(spec, state)
    local current, elapsed = cells.place(spec, now)
    if current < state.index then
      step_back(state, spec.quota, current)
    else
      move_on(spec, state, current)
    end
    state.elapsed = elapsed
  end

  function cells.read(spec, text)
    local _, last, index = find(text, '^C%d+,%d+,%d+,(%d+)')
    local counts = {}
    for count in string.gmatch(sub(text, last + 1), '%d+') do counts[#counts + 1] = tonumber(count) end
    local state = { index = tonumber(index), counts = counts }
    cells.roll(spec, state)
    return state
  end

  function cells.keeps(spec, old)
    return spec.window == old.window and spec.subwindows == old.subwindows
  end

  function cells.fits(spec, state, units)
    local free = spec.quota - younger(state.counts) - units
    if free < 0 then return false end
    local oldest = state.counts[1]
    return free >= oldest
      or product_at_most(oldest, spec.window - state.elapsed, free, spec.window)
  end

  function cells.charge(_, state, units)
    local counts = state.counts
    counts[#counts] = min(MOST, counts[#counts] + units)
  end

  function cells.refund(_, state, units)
    local counts = state.counts
    for i = #counts, 1, -1 do
      local taken = min(units, counts[i])
      counts[i], units = counts[i] - taken, units - taken
    end
  end

  -- Take units out of the cell of that number, if it is still there.
  function cells.take_out(state, cell, units)
    local i = #state.counts - (state.index - cell)
    if state.counts[i] then state.counts[i] = max(0, state.counts[i] - units) end
  end

  function cells.give_back(spec, state, units, since)
    cells.take_out(state, cells.place(spec, since), units)
  end

  function cells.used(spec, state)
    local whole, rest = scale(state.counts[1], spec.window - state.elapsed, spec.window)
    if rest > 0 then whole = whole + 1 end
    return younger(state.counts) + whole
  end

  function cells.write(spec, state)
    local parts, last = {}, 0
    for i, count in ipairs(state.counts) do
      parts[i] = digits(count)
      if count > 0 then last = i end
    end
    local ends = now
    if last > 0 then ends = (state.index + last) * (spec.window / spec.subwindows) end
    local excess = younger(state.counts) - spec.quota
    if excess > 0 then ends = ends + divide_up(excess, spec.quota) * spec.window end
    return format('C%.0f,%.0f,%.0f,%.0f,', spec.window, spec.subwindows, spec.quota, state.index)
      .. table.concat(parts, ','), ends
  end

  function cells.report(_, state)
    local parts = { digits(state.index) }
    for i, count in ipairs(state.counts) do parts[i + 1] = digits(count) end
    return table.concat(parts, ',')
  end

  return cells
end
