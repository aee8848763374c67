-- Counters of any algorithm: found, converted from another limit, asked, changed, written.

local algorithms = {}
local function algorithm_of(kind)
  local found = algorithms[kind]
  if not found then
    found = build[kind]()
    algorithms[kind] = found
  end
  return found
end

local cursor = 1
local function argument()
  cursor = cursor + 1
  return ARGV[cursor]
end

local key_cursor = 0

-- The next check of the arguments: its kind, quota, cost, and the numbers of its algorithm.
local function next_spec()
  key_cursor = key_cursor + 1
  local spec = { key = KEYS[key_cursor], kind = argument() }
  spec.quota, spec.cost = tonumber(argument()), tonumber(argument())
  if spec.kind == 'P' then
    spec.span_w, spec.span_f = tonumber(argument()), tonumber(argument())
    spec.cost_w, spec.cost_f = tonumber(argument()), tonumber(argument())
    spec.q, spec.p, spec.suffix = tonumber(argument()), tonumber(argument()), argument()
  elseif spec.kind == 'Q' then
    spec.largest = tonumber(argument())
    spec.patience_w, spec.patience_f = tonumber(argument()), tonumber(argument())
    spec.cost_w, spec.cost_f = tonumber(argument()), tonumber(argument())
    spec.q, spec.p = tonumber(argument()), tonumber(argument())
  elseif spec.kind == 'S' then
    spec.ttl = tonumber(argument())
    read_shares(spec, argument())
  else
    spec.window = tonumber(argument())
    if spec.kind == 'C' then spec.subwindows = tonumber(argument()) end
  end
  return spec
end

local function kind_of(text)
  local first = sub(text, 1, 1)
  return build[first] and first or 'P'
end

-- The state of a counter under `old` as one under `spec`; true if that is another.
local function converted(spec, old, state)
  local algorithm, writer = algorithm_of(spec.kind), algorithm_of(old.kind)
  if old.kind == spec.kind then
    if algorithm.keeps(spec, old, state) then
      return state, old.quota ~= nil and old.quota ~= spec.quota
    end
    if algorithm.adopt then return algorithm.adopt(spec, state, old), true end
  end
  local used = writer.used(old, state)
  local new = algorithm.new(spec)
  if used > 0 then algorithm.charge(spec, new, used) end
  new.fresh = used == 0
  return new, true
end

-- The counter `key` in `value`: the spec under which it was written, and its state as of now, with all
-- charged that has expired, each as of its instant.
local function read_counter(key, value)
  local bar = find(value, '|', 1, true)
  local text = bar and sub(value, 1, bar - 1) or value
  local writer = algorithm_of(kind_of(text))
  local old, counter, expired = writer.writer(text), { asked = 0, held = 0, holds = {} }, {}
  old.key = key
  if bar then counter.holds, expired, counter.moved = read_holds(sub(value, bar)) end
  for _, hold in ipairs(counter.holds) do
    if is_open(hold) then counter.held = counter.held + hold.amount end
  end
  if #expired > 0 then
    counter.state = at_other_times(function()
      now = expired[1].expires
      local state = writer.read(old, text)
      for _, hold in ipairs(expired) do charge_expired(writer, old, state, hold) end
      return state
    end)
    if writer.roll then writer.roll(old, counter.state) end
    counter.moved = true
  else
    counter.state = writer.read(old, text)
  end
  counter.moved = counter.moved or counter.state.moved
  return counter, old
end

-- The counter of `spec`, opened once per call of a script: checks of one counter share it.
local function open(spec, opened)
  local counter = opened[spec.key]
  if counter then return counter end
  local algorithm = algorithm_of(spec.kind)
  local value = spec.kind ~= 'S' and redis.call('GET', spec.key)
  if value then
    local old
    counter, old = read_counter(spec.key, value)
    counter.state, counter.changed = converted(spec, old, counter.state)
  else
    local state = spec.kind == 'S' and algorithm.open(spec) or algorithm.new(spec)
    counter = { asked = 0, held = 0, holds = {}, state = state }
  end
  opened[spec.key] = counter
  return counter
end

local function fits(spec, counter)
  if spec.cost == 0 then return true end
  local algorithm = algorithm_of(spec.kind)
  if algorithm.ask then return algorithm.ask(spec, counter) end
  counter.asked = counter.asked + spec.cost
  return algorithm.fits(spec, counter.state, counter.asked + counter.held)
end

local function charge(spec, counter)
  if spec.cost > 0 then
    algorithm_of(spec.kind).charge(spec, counter.state, spec.cost)
    counter.state.fresh, counter.changed = nil, true
  end
end

-- Write a counter if it was changed, or moved by the clock, which has stepped back or passed the end
-- of a reservation: once, after all that concerns it has been done. (Without the write the wait of a
-- denied caller would not shrink.)
local function close(spec, counter)
  if not (counter.changed or counter.moved) or spec.kind == 'S' then return end
  counter.changed, counter.moved = false, false
  local algorithm, holds = algorithm_of(spec.kind), counter.holds
  local parts, last, charges, ends = {}, 0, false, nil
  for i, hold in ipairs(holds) do
    parts[i + 1], last = written_hold(hold), max(last, gone_at(hold))
    charges = charges or hold.mark == '+'
  end
  if charges then last = max(last, as_new_at(algorithm, spec, counter.state, holds)) end
  parts[1], ends = algorithm.write(spec, counter.state)
  ends = max(ends, last)
  redis.call('SET', spec.key, table.concat(parts, '|'), 'PX', lasting(min(ends, FAR)))
end

-- What the client needs to compute the figures of a counter for `units`, reservations included.
local function report(spec, counter, units)
  local parts = { algorithm_of(spec.kind).report(spec, counter.state, units, counter.holds) }
  for _, hold in ipairs(counter.holds) do
    if is_open(hold) then
      parts[#parts + 1] = digits(hold.expires) .. ':' .. digits(hold.amount) .. hold.mark
    end
  end
  return table.concat(parts, '|')
end

local function close_all(specs, counters)
  for i, spec in ipairs(specs) do close(spec, counters[i]) end
end

-- The counters of all specs: opened before anything is written, so that an error changes nothing.
local function open_all(specs)
  local opened, counters = {}, {}
  for i, spec in ipairs(specs) do counters[i] = open(spec, opened) end
  return counters
end

local function next_checks()
  local specs = {}
  for i = 1, tonumber(argument()) do specs[i] = next_spec() end
  return specs
end

-- Open all checks and ask each. Returns whether all fit, the counters, and the state of each as it
-- is reported. (Slots that are to be taken are reported when it is known whether they were.)
local function ask(specs, takes_slots)
  local opened, counters, reported, all = {}, {}, {}, true
  for i, spec in ipairs(specs) do
    local counter = open(spec, opened)
    counters[i] = counter
    all = fits(spec, counter) and all
    spec.asked = spec.cost > 0 and counter.asked or 0
    reported[i + 1] = not (takes_slots and spec.kind == 'S') and report(spec, counter, spec.asked)
  end
  reported[1] = all and 1 or 0
  return all, counters, reported
end

-- Carry out `body`; an error takes its place, so that others in this call are not disturbed.
local function alone(body)
  local done, result = pcall(body)
  if done then return result end
  return failure(result)
end
