-- The long way, for a counter with reservations or one that another limit has written: what take.lua
-- would tell of each of `times` hits. `spec` lacks the quota and the unit, the last two arguments.
local function slowly(spec, times)
  --@ numbers counters log slots general
  spec.kind, spec.quota, spec.q = 'P', tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])
  local told = {}
  for i = 1, times do
    local all, counters, one = ask({ spec })
    if all then charge(spec, counters[1]) end
    close(spec, counters[1])
    told[i] = one
  end
  return told
end
