-- Charge what was used elsewhere, as far as it was not told before.
--
-- KEYS   the counter of each check, in order; the totals told so far stand beside each
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the origin  3: the number of the window  4: microseconds to remember it
--        5: the number of checks, then the checks, whose costs are totals
-- reply  now; 1, then the state after of each check, told for a cost of 1

--@ clock failures numbers counters log slots general totals

local origin, window, ttl = argument(), tonumber(argument()), tonumber(argument())
local specs, told, all_totals = next_checks(), { 1 }, {}
local counters = open_all(specs)
for i, spec in ipairs(specs) do all_totals[i] = open_totals(spec.key, origin, all_totals) end
for i, spec in ipairs(specs) do
  local fresh = absorbed(all_totals[i], window, spec.cost, now + ttl)
  if fresh > 0 then
    algorithm_of(spec.kind).charge(spec, counters[i].state, fresh)
    counters[i].state.fresh, counters[i].changed = nil, true
  end
end
for i, spec in ipairs(specs) do told[i + 1] = tell(spec, counters[i], 1) end
close_all(specs, counters)
for _, totals in ipairs(all_totals) do close_totals(totals) end
return { now, told }
