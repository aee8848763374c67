-- Renew the leases of slots, if all are still held.
--
-- KEYS   the slots of each check, in order
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the lease  3: the number of checks, then the checks
-- reply  1 if all were held, else 0

--@ clock failures numbers counters holds log queues slots general

local lease, specs, ends = argument(), next_checks(), {}
local slots = algorithm_of('S')
for i, spec in ipairs(specs) do
  ends[i] = slots.held_until(spec, lease)
  if not ends[i] then return 0 end
end
for i, spec in ipairs(specs) do
  if i > 1 then ends[i] = slots.held_until(spec, lease) end  -- two may be of one counter
  slots.renew(spec, lease, ends[i])
end
return 1
