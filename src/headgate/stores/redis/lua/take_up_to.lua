-- Charge as much of one cost as fits in all the checks.
--
-- KEYS   the counter of each check, in order
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the number of checks, then the checks, all of one cost
-- reply  now; the units charged; 1 if that is the whole cost or 0, then the state after of each
--        check, reported for the rest

--@ clock failures numbers counters holds log queues slots general

local specs = next_checks()
local counters, granted = open_all(specs), specs[1].cost
for _, counter in ipairs(counters) do counter.times = (counter.times or 0) + 1 end

-- How much of `most` fits. The units in use may be a rounded number, so it is tried out.
local function fitting(spec, counter, most)
  local algorithm, state, times = algorithm_of(spec.kind), counter.state, counter.times
  local function has_room(units)
    return algorithm.fits(spec, state, units * times + counter.held)
  end
  local free = max(0, spec.quota - algorithm.used(spec, state) - counter.held)
  local units = min(most, floor(free / times))
  while units > 0 and not has_room(units) do units = units - 1 end
  while units < most and has_room(units + 1) do units = units + 1 end
  return units
end

for i, spec in ipairs(specs) do granted = fitting(spec, counters[i], granted) end
local rest = specs[1].cost - granted
local reported = { rest == 0 and 1 or 0 }
if granted > 0 then
  for i, spec in ipairs(specs) do
    algorithm_of(spec.kind).charge(spec, counters[i].state, granted)
    counters[i].state.fresh, counters[i].changed = nil, true
  end
end
for i, spec in ipairs(specs) do
  local counter = counters[i]
  counter.asked = counter.asked + rest
  reported[i + 1] = report(spec, counter, counter.asked)
end
close_all(specs, counters)
return { now, granted, reported }
