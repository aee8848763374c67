-- Release slots.
--
-- KEYS   the slots of each check, in order
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the lease  3: the number of checks, then the checks
-- reply  1 if all were held, else 0

--@ clock failures numbers counters holds log queues slots general

local lease, had_all = argument(), 1
for _, spec in ipairs(next_checks()) do
  if not algorithm_of('S').release(spec, lease) then had_all = 0 end
end
return had_all
