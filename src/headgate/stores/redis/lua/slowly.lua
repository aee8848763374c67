-- The long way, for a counter with reservations or one that another limit has written: what take.lua
-- reports for each of `times` hits.
local function slowly(spec, times)
  --@ numbers counters holds log queues slots general
  spec.kind = 'P'
  local reported = {}
  for i = 1, times do
    local all, counters, one = ask({ spec })
    if all then charge(spec, counters[1]) end
    close(spec, counters[1])
    reported[i] = one
  end
  return reported
end
