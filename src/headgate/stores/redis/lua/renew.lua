-- Start the leases of slots anew, if all are still held.
--
-- KEYS   the slots of each check, in order
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the lease  3: the number of checks, then the checks
-- reply  1 if all were held, else 0

--@ clock failures numbers counters log queues slots general

local lease, specs = argument(), next_checks()
local slots = algorithm_of('S')
for _, spec in ipairs(specs) do
  if not slots.has(spec, lease) then return 0 end
end
for _, spec in ipairs(specs) do slots.enter(spec, lease, true) end
return 1
