-- Take a check, and grant a lease of the same counter for later.
--
-- KEYS   the counter; its lease ledger is beside it
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the holder  3: the most units to grant  4: for how many microseconds
--        5: units of its last lease that were not used, or may be before it gets the reply
--        6: all units that it has used uncharged  7: the units of those that it knows are charged
--        8: the most units that all leases may have, or ''  9: 1 to charge the lease, or 0
--        10: the number of checks, 1, then the check
-- reply  now; a take's reply for the check; the units granted, and for how many microseconds; how
--        many holders have a lease, and the units of all leases; the state after, reported for the
--        check's cost and the most

--@ clock failures numbers counters holds log queues slots general places ledger

local holder, most, ttl, unused = argument(), tonumber(argument()), tonumber(argument()),
  tonumber(argument())
local used, known, cap, is_charged = tonumber(argument()), tonumber(argument()),
  tonumber(argument()), argument() == '1'
local spec = next_checks()[1]
local counter, ledger = open(spec, {}), open_ledger(spec.key, holder)
local state, algorithm, place = counter.state, algorithm_of(spec.kind), places[spec.kind]

local function charge_units(units)
  if units <= 0 then return end
  algorithm.charge(spec, state, units)
  state.fresh, counter.changed = nil, true
end

charge_units(close_expired(ledger, ttl))
local account = ledger.own
  or { amount = 0, expires = 0, is_charged = true, used = 0, paid = 0, place = '' }

-- What the holder used, and what it returns.
charge_units(used - max(account.used, known) - account.paid)
account.used, account.paid = max(account.used, used, known), 0
local units = min(unused, account.amount)
local back, least = units, 0
if not account.is_charged then back, least = 0, units end
end_lease(ledger, account)
if back > 0 and not state.fresh then
  place.give_back(spec, state, back, account.place)
  counter.changed = true
end

local before = report(spec, counter, spec.cost)
local is_taken = fits(spec, counter)
if is_taken then charge(spec, counter) end

-- How many units can be granted: what fits, as far as the cap allows.
local function grantable()
  local units = min(most, spec.quota - algorithm.used(spec, state) - counter.held)
  if cap then units = min(units, cap - ledger.granted) end
  if units > 0 and not algorithm.fits(spec, state, units + counter.held) then units = units - 1 end
  return is_charged and units or max(units, min(least, most))
end

account.kept = min(max(10 * ttl, KEPT_LEAST), KEPT_MOST)
local amount = is_taken and ttl > 0 and has_room(ledger) and grantable() or 0
if amount > 0 then
  local ends = place.ends(spec, state, amount)
  account.amount, account.expires = amount, min(now + ttl, ends)
  account.is_charged, account.kept = is_charged, max(account.kept, ends - now)
  ledger.granted, ledger.holders = ledger.granted + amount, ledger.holders + 1
  if is_charged then
    charge_units(amount)
    account.place = place.now(spec, state)
  end
end
keep_account(ledger, account)
local after = report(spec, counter, spec.cost + most)
close(spec, counter)
close_ledger(ledger)
return { now, { is_taken and 1 or 0, before }, account.amount,
  account.amount > 0 and account.expires - now or 0, ledger.holders, ledger.granted, after }
