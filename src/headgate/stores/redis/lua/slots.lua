-- Slots: a sorted set of leases by the instant at which they run out. Not consumption: they stand
-- beside whatever else a counter holds, in a key of their own.
--
-- Where parts of the callers are guaranteed some of them, there is a second sorted set beside it
-- (`~|`), all of whose scores are 0, so that it is in the order of its texts:
--   part:TTTTTTTTTTTTTTTT:lease           a lease of that part, and when it runs out
--   !part:TTTTTTTTTTTTTTTT:units:limit    what the part claims: see headgate.algorithms.concurrency
--   "part:TTTTTTTTTTTTTTTT:units:limit    what is kept for it
-- The first set also has the member TTL: its score is the longest ttl of the leases, negated.
-- All leases are in the first set, whatever their part; the second only says how many of them a part
-- has at any instant, in O(log n). Who asks without shares looks at the first alone.

local CLAIM, KEEP, GRAIN = 1000000, 250000, 62500
local TTL = '\0ttl'

-- What a check says of shares: '' if there are none, else lends:part:name=slots:name=slots...
local function read_shares(spec, text)
  spec.parts = beside(spec.key, '|')
  spec.share, spec.most = 0, spec.quota
  if text == '' then return end
  local _, last, lends, part = find(text, '^(%d):([^:]*)')
  spec.lends, spec.part = lends == '1', part ~= '' and part or nil
  spec.others = {}
  for name, slots in string.gmatch(sub(text, last + 1), ':([^:=]+)=(%d+)') do
    if name == spec.part then
      spec.share = tonumber(slots)
    else
      spec.others[#spec.others + 1] = { name = name, slots = tonumber(slots) }
      if not spec.lends then spec.most = spec.most - slots end
    end
  end
end

build.S = function()
  local slots = {}

  local function instant(at) return format('%016.0f', at) end

  local function entry(part, ends, lease) return part .. ':' .. instant(ends) .. ':' .. lease end

  -- The last instant at which a lease of the set can end: one that seems to end later was taken
  -- before the clock stepped back. The member TTL has the longest ttl of the leases, negated, for a
  -- score.
  local latest_of = {}
  local function latest(spec)
    local found = latest_of[spec.key]
    if not found then
      local longest = redis.call('ZSCORE', spec.key, TTL)
      found = longest and now - longest or FAR
      latest_of[spec.key] = found
    end
    return found
  end

  local function used_at(spec, at)
    if at >= latest(spec) then return 0 end
    return redis.call('ZCOUNT', spec.key, '(' .. digits(at), '+inf')
  end

  local function used_by(spec, part, at)
    if at >= latest(spec) then return 0 end
    return redis.call('ZLEXCOUNT', spec.parts, '[' .. part .. ':' .. instant(at + 1),
      '(' .. part .. ';')
  end

  -- When the lease runs out that is the `place`th to do so, counted from 1.
  local function end_of(spec, state, place)
    if not spec.others then
      return min(latest(spec), tonumber(redis.call('ZRANGEBYSCORE', spec.key,
        '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', place - 1, 1)[2]))
    end
    state.over = state.over or redis.call('ZCOUNT', spec.key, '-inf', digits(now))
    local rank = state.over + place - 1
    return min(latest(spec),
      tonumber(redis.call('ZRANGE', spec.key, rank, rank, 'WITHSCORES')[2]))
  end

  local function last_end(spec)
    return min(latest(spec),
      tonumber(redis.call('ZRANGE', spec.key, -1, -1, 'WITHSCORES')[2] or 0))
  end

  -- What each part claims, and what is kept for each: what ends first comes first.
  local function read_claims(spec)
    local claims, kept = {}, {}
    for _, text in ipairs(redis.call('ZRANGEBYLEX', spec.parts, '[!', '(#')) do
      local _, _, kind, part, ends, units, limit = find(text, '^([!"])([^:]+):(%d+):(%d+):(%d+)$')
      local found = kind == '!' and claims or kept
      local latest = now + CLAIM
      if kind ~= '!' then latest = divide_up(now + KEEP, GRAIN) * GRAIN end
      found[part] = found[part] or {}
      ends = tonumber(ends)
      table.insert(found[part], { kind = kind, part = part, ends = min(ends, latest),
        is_moved = ends > latest, units = tonumber(units), limit = tonumber(limit), text = text })
    end
    return claims, kept
  end

  -- How many units are in `list` at the instant `at` for callers that ask under `limit`.
  local function units_in(list, at, limit)
    local units = 0
    for _, claim in ipairs(list or {}) do
      if claim.ends > at and claim.limit >= limit then units = units + claim.units end
    end
    return units
  end

  -- When all claims, and all leases, the last of which ends at `ends`, have run out.
  local function all_over(ends, claims, kept)
    for _, lists in ipairs({ claims, kept }) do
      for _, list in pairs(lists) do ends = max(ends, list[#list].ends) end
    end
    return ends
  end

  -- Write the claim at `place` of `list` with so many units; none: it goes.
  local function put_claim(spec, list, place, units)
    local claim = list[place]
    if claim.text then redis.call('ZREM', spec.parts, claim.text) end
    if units == 0 then
      table.remove(list, place)
      return
    end
    claim.units = units
    claim.text = format('%s%s:%s:%.0f:%.0f', claim.kind, claim.part, instant(claim.ends), units,
      claim.limit)
    redis.call('ZADD', spec.parts, 0, claim.text)
  end

  -- Throw away what has run out.
  local function tidy_claims(spec, lists)
    for part, list in pairs(lists) do
      local live = {}
      for _, claim in ipairs(list) do
        if claim.ends > now then
          live[#live + 1] = claim
          if claim.is_moved then
            claim.is_moved = false
            put_claim(spec, live, #live, claim.units)
          end
        else
          redis.call('ZREM', spec.parts, claim.text)
        end
      end
      lists[part] = live[1] and live or nil
    end
  end

  -- Each part that has leases, whether it has a share or not, until `body` says that it is enough.
  local function each_part(spec, body)
    local from = '[#'
    while true do
      local found = redis.call('ZRANGEBYLEX', spec.parts, from, '+', 'LIMIT', 0, 1)[1]
      if not found then return end
      local part = sub(found, 1, find(found, ':', 1, true) - 1)
      if body(part) then return part end
      from = '[' .. part .. ';'
    end
  end

  -- Take a lease that ends at `ends` from the part that has it; which one that was.
  local function take_from_part(spec, lease, ends)
    local function is_taken(part)
      return redis.call('ZREM', spec.parts, entry(part, ends, lease)) == 1
    end
    if spec.part and is_taken(spec.part) then return spec.part end
    return each_part(spec, is_taken)
  end

  local function tidy(spec)
    if redis.call('ZREMRANGEBYSCORE', spec.key, 0, digits(now)) == 0 then return end
    each_part(spec, function(part)
      redis.call('ZREMRANGEBYLEX', spec.parts, '[' .. part .. ':',
        '(' .. part .. ':' .. instant(now + 1))
    end)
  end

  -- Shorten the leases that were taken before the clock stepped back.
  function slots.step_back(spec)
    local ends = latest(spec)
    local late = redis.call('ZRANGEBYSCORE', spec.key, '(' .. digits(ends), '+inf', 'WITHSCORES')
    for i = 1, #late, 2 do
      local part = take_from_part(spec, late[i], tonumber(late[i + 1]))
      redis.call('ZADD', spec.key, digits(ends), late[i])
      if part then redis.call('ZADD', spec.parts, 0, entry(part, ends, late[i])) end
    end
    if late[1] then redis.call('PEXPIRE', spec.key, lasting(ends)) end
  end

  -- Record the ttl of a lease that is taken or renewed now.
  local function put_ttl(spec)
    local longest = tonumber(redis.call('ZSCORE', spec.key, TTL) or 0)
    local is_alone = redis.call('ZCOUNT', spec.key, '(' .. digits(now), '+inf') == 0
    if is_alone or -spec.ttl < longest then
      redis.call('ZADD', spec.key, digits(-spec.ttl), TTL)
      latest_of[spec.key] = nil
    end
  end

  local function own_at(spec, state, at)
    if at ~= now then return used_by(spec, spec.part, at) end
    state.own = state.own or {}
    state.own[spec.part] = state.own[spec.part] or used_by(spec, spec.part, now)
    return state.own[spec.part]
  end

  -- (Callers that asked the same counter before may have had no shares.)
  local function know_claims(spec, state)
    if not state.claims then state.claims, state.kept = read_claims(spec) end
  end

  -- What the part could take at the instant `at`, if no other caller came.
  local function room(spec, state, at)
    local free = spec.quota - (at == now and state.used or used_at(spec, at))
    if free <= 0 then return 0 end
    if not spec.others then return free end
    know_claims(spec, state)
    local left, lacking = free, 0
    for _, other in ipairs(spec.others) do
      if not spec.lends then
        left = left - max(0, other.slots - used_by(spec, other.name, at))
      else
        local kept = units_in(state.kept[other.name], at, spec.quota)
        free, left = free - kept, left - kept - units_in(state.claims[other.name], at, spec.quota)
      end
    end
    if spec.share > 0 then lacking = spec.share - own_at(spec, state, at) end
    return max(0, min(free, lacking), left)
  end

  -- When `units` fit, of which there is no room now. Room never shrinks by time alone.
  local function room_at(spec, state, units)
    local low, high = max(1, state.used + units - spec.quota), state.used
    if not spec.others then return end_of(spec, state, low) end
    local found
    while low <= high do
      local middle = floor((low + high) / 2)
      local at = end_of(spec, state, middle)
      if room(spec, state, at) >= units then found, high = at, middle - 1 else low = middle + 1 end
    end
    for _, lists in ipairs({ state.claims, state.kept }) do
      for _, list in pairs(lists) do
        for _, claim in ipairs(list) do
          local at = claim.ends
          if at > now and (not found or at < found) and room(spec, state, at) >= units then
            found = at
          end
        end
      end
    end
    return found
  end

  function slots.open(spec)
    local state = { used = used_at(spec, now) }
    state.room = room(spec, state, now)
    return state
  end

  function slots.fits(_, state, units) return units <= state.room end

  -- When the running lease ends; nil if there is none.
  function slots.held_until(spec, lease)
    local ends = tonumber(redis.call('ZSCORE', spec.key, lease) or 0)
    return ends > now and ends or nil
  end

  -- One slot less is kept for the part, the last that was, or else claimed by it.
  local function use(spec, state)
    local list = state.kept[spec.part] or state.claims[spec.part]
    if not list then return end
    put_claim(spec, list, #list, list[#list].units - 1)
    if #list > 0 then return end
    if state.kept[spec.part] then state.kept[spec.part] = nil else state.claims[spec.part] = nil end
  end

  -- Take a slot; how things stand then.
  function slots.enter(spec, lease, state)
    tidy(spec)
    slots.step_back(spec)
    put_ttl(spec)
    local ends = digits(now + spec.ttl)
    local is_new = redis.call('ZADD', spec.key, 'NX', ends, lease) == 1
    if is_new then
      state.used = state.used + 1
    else
      take_from_part(spec, lease, slots.held_until(spec, lease))
      redis.call('ZADD', spec.key, ends, lease)
    end
    state.own, state.last = nil, last_end(spec)
    redis.call('PEXPIRE', spec.key, lasting(state.last))
    if spec.others then
      know_claims(spec, state)
      tidy_claims(spec, state.claims)
      tidy_claims(spec, state.kept)
    end
    if spec.part then
      redis.call('ZADD', spec.parts, 0, entry(spec.part, now + spec.ttl, lease))
      if is_new then use(spec, state) end
      redis.call('PEXPIRE', spec.parts, lasting(all_over(state.last, state.claims, state.kept)))
    end
    return slots.report(spec, state, 0)
  end

  -- Renew the lease that runs until `ends`, with the part that has it.
  function slots.renew(spec, lease, ends)
    local part = take_from_part(spec, lease, ends)
    tidy(spec)
    slots.step_back(spec)
    put_ttl(spec)
    redis.call('ZADD', spec.key, digits(now + spec.ttl), lease)
    local last = last_end(spec)
    redis.call('PEXPIRE', spec.key, lasting(last))
    if not part then return end
    redis.call('ZADD', spec.parts, 0, entry(part, now + spec.ttl, lease))
    redis.call('PEXPIRE', spec.parts, lasting(all_over(last, read_claims(spec))))
  end

  -- Keep a slot for the part that gave it back, if it has no more than its share.
  local function keep(spec)
    local claims, kept = read_claims(spec)
    tidy_claims(spec, kept)
    local list = kept[spec.part] or {}
    local needed = units_in(list, now, 0) + units_in(claims[spec.part], now, 0)
    if needed >= spec.share - used_by(spec, spec.part, now) then return end
    local ends, place = divide_up(now + KEEP, GRAIN) * GRAIN, 1
    while list[place] and list[place].ends < ends do place = place + 1 end
    local claim = list[place]
    if not claim or claim.ends > ends then
      claim = { kind = '"', part = spec.part, ends = ends, units = 0, limit = 0 }
      table.insert(list, place, claim)
    end
    claim.limit = max(claim.limit, spec.quota)
    put_claim(spec, list, place, claim.units + 1)
    kept[spec.part] = list
    redis.call('PEXPIRE', spec.parts, lasting(all_over(last_end(spec), claims, kept)))
  end

  function slots.release(spec, lease)
    local ends = tonumber(redis.call('ZSCORE', spec.key, lease) or 0)
    if ends == 0 then return false end
    redis.call('ZREM', spec.key, lease)
    if redis.call('ZCOUNT', spec.key, 0, '+inf') == 0 then redis.call('DEL', spec.key) end
    local part = take_from_part(spec, lease, ends)
    if ends > now and part and part == spec.part and spec.lends and spec.share > 0 then
      keep(spec)
    end
    return ends > now
  end

  -- Remember that `units` did not fit, if they were guaranteed.
  function slots.deny(spec, state, units)
    if not spec.lends or spec.share == 0 or units > spec.most then return end
    know_claims(spec, state)
    state.last = state.last or last_end(spec)
    local missing = spec.share - own_at(spec, state, now)
    local needed = min(units, missing)
    if needed <= state.room then return end
    local list = state.claims[spec.part]
    local old, limit = units_in(list, now, 0), spec.quota
    if old > 0 then limit = max(list[1].limit, limit) end
    needed = min(old + needed, missing - units_in(state.kept[spec.part], now, 0))
    if needed <= 0 then return end
    list = list or { { kind = '!', part = spec.part } }
    list[1].ends, list[1].limit = now + CLAIM, limit
    put_claim(spec, list, 1, needed)
    state.claims[spec.part] = list
    redis.call('PEXPIRE', spec.parts, lasting(all_over(state.last, state.claims, state.kept)))
  end

  function slots.report(spec, state, units)
    local free_at, left = '', room(spec, state, now)
    if units <= left then
      free_at = digits(now)
    elseif units <= spec.most then
      free_at = digits(room_at(spec, state, units))
    end
    state.last = state.last or last_end(spec)
    local ends = state.last
    if spec.others then
      know_claims(spec, state)
      ends = all_over(ends, state.claims, state.kept)
    end
    return format('%.0f,%.0f,', left, ends) .. free_at
  end

  return slots
end
