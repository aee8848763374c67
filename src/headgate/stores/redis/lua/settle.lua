-- Close a reservation and charge what it really cost.
--
-- KEYS   the counter of each check, in order
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the name  3: 1 to charge even if it has expired  4: the number of checks, then them
-- reply  1 if it was open in all of them, else 0

--@ clock failures numbers counters log queues slots general

local name, charge_expired = argument(), argument() == '1'
local specs, was_open, is_closed = next_checks(), 1, {}
local counters = open_all(specs)
for i, spec in ipairs(specs) do
  local counter, left = counters[i], {}
  if is_closed[counter] == nil then
    for _, hold in ipairs(counter.holds) do
      if hold.name ~= name then left[#left + 1] = hold else counter.had = hold.amount end
    end
    is_closed[counter] = #left < #counter.holds
    if is_closed[counter] then counter.holds, counter.changed = left, true end
  end
  if not is_closed[counter] then was_open = 0 end
  if spec.kind == 'Q' then  -- what was held has its place: only what goes beyond it is charged
    local had = counter.had or spec.cost
    if spec.cost > had then
      algorithm_of('Q').charge(spec, counter.state, spec.cost - had)
      counter.changed = true
    end
    counter.had = max(0, had - spec.cost)
  elseif is_closed[counter] or charge_expired then
    charge(spec, counter)
  end
end
close_all(specs, counters)
return was_open
