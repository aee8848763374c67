-- Cancel places in queues before they come.
--
-- KEYS   the counter of each check, in order
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: when each place comes, in microseconds, with commas between
--        3: the number of checks, then the checks
-- reply  1 if all places were there, else 0

--@ clock failures numbers counters holds log queues slots general

local places = {}
for place in string.gmatch(argument(), '%d+') do places[#places + 1] = tonumber(place) end
local specs, had_all = next_checks(), 1
local counters = open_all(specs)
for i, spec in ipairs(specs) do
  local algorithm = algorithm_of(spec.kind)
  if algorithm.cancel and algorithm.cancel(spec, counters[i].state, places[i], spec.cost) then
    counters[i].changed = true
  else
    had_all = 0
  end
end
close_all(specs, counters)
return had_all
