-- Where in a counter units were charged, so that they are returned there and nowhere else: the
-- window, the cell or the entry. If that is gone, so are they. A paced counter has no places.

local places = {}

places.P = {
  now = function() return 'P' end,
  ends = function(spec)  -- all that was ever charged has been refilled then
    return now + spec.span_w + (spec.span_f > 0 and 1 or 0)
  end,
  give_back = function(spec, state, units, place)
    if place == 'P' then algorithm_of('P').refund(spec, state, units) end
  end,
}

places.F = {
  now = function(spec, state) return format('F%.0f,%.0f', spec.window, state.start) end,
  ends = function(spec, state) return state.start + spec.window end,
  give_back = function(spec, state, units, place)
    if place == places.F.now(spec, state) then algorithm_of('F').refund(spec, state, units) end
  end,
}

places.C = {
  now = function(spec, state)
    return format('C%.0f,%.0f,%.0f', spec.window, spec.subwindows, state.index)
  end,
  ends = function(spec, state)
    local whole, rest = scale(state.index + #state.counts, spec.window, spec.subwindows)
    return rest > 0 and whole + 1 or whole
  end,
  give_back = function(spec, state, units, place)
    local _, _, window, subwindows, cell = find(place, '^C(%d+),(%d+),(%d+)$')
    if tonumber(window) ~= spec.window or tonumber(subwindows) ~= spec.subwindows then return end
    algorithm_of('C').take_out(state, tonumber(cell), units)
  end,
}

places.L = {
  now = function(spec, state) return format('L%.0f,%.0f', spec.window, state.high) end,
  ends = function(spec, state) return state.high + spec.window end,
  give_back = function(spec, state, units, place)
    local _, _, window, time = find(place, '^L(%d+),(%d+)$')
    if tonumber(window) == spec.window then
      algorithm_of('L').give_back(spec, state, units, tonumber(time))
    end
  end,
}
