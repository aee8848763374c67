-- Close a reservation and charge what it really cost.
--
-- KEYS   the counter of each check, in order
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the name  3: 1 to charge even if it has lapsed  4: the number of checks, then them
-- reply  1 if it was open in all of them, else 0

--@ clock failures numbers counters log slots general

local name, charge_lapsed = argument(), argument() == '1'
local was_open, opened = 1, {}
for _, spec in ipairs(next_checks()) do
  local counter, left, found = open(spec, opened), {}, false
  for _, hold in ipairs(counter.holds) do
    if hold.name == name then found = true else left[#left + 1] = hold end
  end
  if found then
    counter.holds, counter.changed = left, true
  else
    was_open = 0
  end
  if found or charge_lapsed then charge(spec, counter) end
  close(spec, counter)
end
return was_open
