-- Close a reservation and charge what it really cost.
--
-- KEYS   the counter of each check, in order
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the name  3: 1 to charge even if it has expired  4: the number of checks, then them
-- reply  1 if it was open in all of them, else 0

--@ clock failures numbers counters holds log queues slots general

local name, charge_lapsed = argument(), argument() == '1'
local specs, was_open = next_checks(), 1
local counters = open_all(specs)

-- Remove the hold from a counter and return it; nil if it is not known.
local function removed(counter)
  for i, hold in ipairs(counter.holds) do
    if hold.name == name then
      counter.changed = true
      return table.remove(counter.holds, i)
    end
  end
end

-- Settle the hold of a counter for `amount`, all that its checks have cost.
local function settle(spec, counter, amount)
  local hold, algorithm, state = removed(counter), algorithm_of(spec.kind), counter.state
  local is_paid = hold and (spec.kind == 'Q' or not is_open(hold))
  if not hold or not is_open(hold) then was_open = 0 end
  if not hold and (spec.kind == 'Q' or not charge_lapsed) then return end
  if is_paid then amount = amount - hold.amount end
  if amount > 0 then
    algorithm.charge(spec, state, amount)
    state.fresh, counter.changed = nil, true
  elseif amount < 0 and algorithm.give_back and not state.fresh then
    algorithm.give_back(spec, state, -amount, hold.expires)
  end
end

local costs = {}
for i, spec in ipairs(specs) do
  costs[counters[i]] = (costs[counters[i]] or 0) + spec.cost
end
for i, spec in ipairs(specs) do
  local counter = counters[i]
  if costs[counter] then settle(spec, counter, costs[counter]) end
  costs[counter] = nil
end
close_all(specs, counters)
return was_open
