-- Record amounts, fitting or not.
--
-- KEYS   the counter of each check, in order
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the number of checks, then the checks
-- reply  now; 1, then the state after of each check, reported for a cost of 1

--@ clock failures numbers counters holds log queues slots general

local specs, reported = next_checks(), { 1 }
local counters = open_all(specs)
for i, spec in ipairs(specs) do charge(spec, counters[i]) end
for i, spec in ipairs(specs) do reported[i + 1] = report(spec, counters[i], 1) end
close_all(specs, counters)
return { now, reported }
