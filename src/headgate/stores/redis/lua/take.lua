-- Takes, each for itself: charge all its checks if all fit, else none.
--
-- KEYS   the counter of each check, in order
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        then for each take: 1 to consume or 0 to look, the lease or '', the number of checks,
--        and for each check what next_spec() reads
-- reply  now, and for each take: 1 if all fit or 0, then the state before of each check (of slots
--        that were entered: after); or an error

--@ clock failures numbers counters holds log queues slots general

local function take()
  local consume, lease = argument() == '1', argument()
  local specs = next_checks()
  return alone(function()
    local all, counters, reported = ask(specs, consume)
    for i, spec in ipairs(specs) do
      if spec.kind == 'S' and consume then
        if all then
          reported[i + 1] = algorithm_of('S').enter(spec, lease, counters[i].state)
        else
          reported[i + 1] = report(spec, counters[i], spec.asked)
          algorithm_of('S').step_back(spec)
        end
      elseif all and consume then
        charge(spec, counters[i])
      end
    end
    for _, counter in ipairs(counters) do
      -- A peek writes nothing, not even a counter that it has converted from another limit.
      if not consume then counter.changed, counter.moved = false, false end
    end
    close_all(specs, counters)
    if not all and consume and lease ~= '' then
      for i, spec in ipairs(specs) do
        if spec.kind == 'S' then algorithm_of('S').deny(spec, counters[i].state, spec.cost) end
      end
    end
    return reported
  end)
end

local replies = { now }
while cursor < #ARGV do
  local reported, is_for_all = take()
  if is_for_all then return reported end
  replies[#replies + 1] = reported
end
return replies
