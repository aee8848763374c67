-- Charge the usage of another region, as far as it was not merged before.
--
-- KEYS   the counter of each check, in order; the totals merged so far are beside each
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the origin  3: the number of the window  4: microseconds to remember it
--        5, 6: the largest debt as a fraction of the limit, numerator and denominator; or '', '': any
--        7: the number of checks, then the checks, whose costs are totals
-- reply  now; 1, then the state after of each check, reported for a cost of 1
--
-- A counter that is in use stays under the limit it was written under, whatever another region has
-- by now: to go back and forth would refill it at the other's pace, or age nothing.

--@ clock failures numbers counters holds log queues slots general totals

-- The counter of `spec`, opened once; `own` is the spec that it is kept under.
local function open_kept(spec, opened)
  local counter = opened[spec.key]
  if counter then return counter end
  local value, old = redis.call('GET', spec.key), nil
  if value then
    counter, old = read_counter(spec.key, value)
    counter.own = old
    if counter.held == 0 and algorithm_of(old.kind).used(old, counter.state) == 0 then
      counter.own = spec
      counter.state, counter.changed = converted(spec, old, counter.state)
    end
  else
    counter = { own = spec, held = 0, holds = {}, state = algorithm_of(spec.kind).new(spec) }
  end
  opened[spec.key] = counter
  return counter
end

-- The counter as one under `spec` would be reported; nothing is written.
local function report_under(spec, counter)
  local own = counter.own
  if own == spec then return report(spec, counter, 1) end
  return report(spec, { state = converted(spec, own, counter.state), holds = counter.holds }, 1)
end

-- How many units may be charged until the debt is as large as it may be.
local function room(own, state, share, of)
  if not share then return MOST end
  return max(0, own.quota + scale(own.quota, share, of) - algorithm_of(own.kind).used(own, state))
end

local origin, window, ttl = argument(), tonumber(argument()), tonumber(argument())
local share, of = tonumber(argument()), tonumber(argument())
local specs, reported, counters, all_totals = next_checks(), { 1 }, {}, {}
local opened, opened_totals = {}, {}
for i, spec in ipairs(specs) do
  counters[i] = open_kept(spec, opened)
  all_totals[i] = open_totals(spec.key, origin, opened_totals)
end
for i, spec in ipairs(specs) do
  local fresh, own = merged(all_totals[i], window, spec.cost, now + ttl), counters[i].own
  fresh = min(fresh, room(own, counters[i].state, share, of))
  if fresh > 0 then
    algorithm_of(own.kind).charge(own, counters[i].state, fresh)
    counters[i].state.fresh, counters[i].changed = nil, true
  end
end
for i, spec in ipairs(specs) do reported[i + 1] = report_under(spec, counters[i]) end
for _, counter in ipairs(counters) do close(counter.own, counter) end
for _, totals in ipairs(all_totals) do close_totals(totals) end
return { now, reported }
