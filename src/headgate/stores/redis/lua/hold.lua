-- Set amounts aside under a name if all fit, else none.
--
-- KEYS   the counter of each check, in order
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the name  3: microseconds until it expires  4: + if it is charged then, or ''
--        5: the number of checks, then the checks
-- reply  now; 1 if all fit or 0, then the state before of each check; if all fit, the same after

--@ clock failures numbers counters holds log queues slots general

local name, ttl, mark = argument(), tonumber(argument()), argument()
local specs = next_checks()
local all, counters, reported = ask(specs)
for i, spec in ipairs(specs) do
  local counter = counters[i]
  if all and spec.kind == 'Q' then charge(spec, counter) end  -- in a queue it has its place at once
  if all and spec.cost > 0 then
    local amount = counter.added or 0
    for n = #counter.holds, 1, -1 do
      if counter.holds[n].name == name then table.remove(counter.holds, n) end
    end
    counter.added, counter.changed = amount + spec.cost, true
    table.insert(counter.holds, { expires = now + ttl, amount = counter.added, lasts = ttl,
      mark = spec.kind ~= 'Q' and mark or '', name = name })
  end
end
local after = { 1 }
if all then
  for i, spec in ipairs(specs) do after[i + 1] = report(spec, counters[i], 0) end
end
close_all(specs, counters)
if not all then return { now, reported } end
return { now, reported, after }
