-- Slots: a sorted set of leases by the instant at which they run out. Not consumption: they stand
-- beside whatever else a counter holds, in a key of their own.
--
-- Where parts of the callers are guaranteed some of them, there is a second sorted set beside it
-- (`~|`), all of whose scores are 0, so that it is in the order of its texts:
--   part:TTTTTTTTTTTTTTTT:lease      a lease of that part, and when it runs out
--   !part:units:until:limit          what the part claims: see headgate.algorithms.concurrency
-- All leases are in the first set, whosever they are; the second only tells how many of them a part
-- has at any instant, in O(log n).

local CLAIM = 1000000

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

  local function used_at(spec, at)
    return redis.call('ZCOUNT', spec.key, '(' .. digits(at), '+inf')
  end

  local function used_by(spec, part, at)
    return redis.call('ZLEXCOUNT', spec.parts, '[' .. part .. ':' .. instant(at + 1),
      '(' .. part .. ';')
  end

  -- When the lease runs out that is the `place`th to do so, counted from 1.
  local function end_of(spec, state, place)
    state.over = state.over or redis.call('ZCOUNT', spec.key, '-inf', digits(now))
    local rank = state.over + place - 1
    return tonumber(redis.call('ZRANGE', spec.key, rank, rank, 'WITHSCORES')[2])
  end

  local function last_end(spec)
    return tonumber(redis.call('ZRANGE', spec.key, -1, -1, 'WITHSCORES')[2] or 0)
  end

  local function claims_of(spec)
    local claims = {}
    for _, text in ipairs(redis.call('ZRANGEBYLEX', spec.parts, '[!', '("')) do
      local _, _, part, units, ends, limit = find(text, '^!([^:]+):(%d+):(%d+):(%d+)$')
      claims[part] = { units = tonumber(units), ends = tonumber(ends), limit = tonumber(limit),
        text = text }
    end
    return claims
  end

  -- When all leases and claims have run out.
  local function all_over(spec, claims)
    local ends = last_end(spec)
    for _, claim in pairs(claims) do ends = max(ends, claim.ends) end
    return ends
  end

  local function put_claim(spec, claims, units, ends, limit)
    local old = claims[spec.part]
    if old then redis.call('ZREM', spec.parts, old.text) end
    claims[spec.part] = nil
    if units == 0 then return end
    local text = format('!%s:%.0f:%.0f:%.0f', spec.part, units, ends, limit)
    claims[spec.part] = { units = units, ends = ends, limit = limit, text = text }
    redis.call('ZADD', spec.parts, 0, text)
  end

  -- Each part that has leases, whether it has a share or not, until `body` says that it is enough.
  local function each_part(spec, body)
    local from = '["'
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
    if redis.call('ZREMRANGEBYSCORE', spec.key, '-inf', digits(now)) == 0 then return end
    each_part(spec, function(part)
      redis.call('ZREMRANGEBYLEX', spec.parts, '[' .. part .. ':',
        '(' .. part .. ':' .. instant(now + 1))
    end)
  end

  -- What the part could take at the instant `at`, if nobody else came.
  local function room(spec, state, at)
    local free = spec.quota - (at == now and state.used or used_at(spec, at))
    if free <= 0 then return 0 end
    if not spec.others then return free end
    local kept, lacking = 0, 0
    for _, other in ipairs(spec.others) do
      local claim = state.claims[other.name]
      if not spec.lends then
        kept = kept + max(0, other.slots - used_by(spec, other.name, at))
      elseif claim and claim.ends > at and claim.limit >= spec.quota then
        kept = kept + claim.units
      end
    end
    if spec.share > 0 then lacking = spec.share - used_by(spec, spec.part, at) end
    return max(0, min(free, lacking), free - kept)
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
    for _, claim in pairs(state.claims) do
      local at = claim.ends
      if at > now and (not found or at < found) and room(spec, state, at) >= units then
        found = at
      end
    end
    return found
  end

  function slots.open(spec)
    local state = { used = used_at(spec, now), claims = claims_of(spec) }
    state.room = room(spec, state, now)
    return state
  end

  function slots.fits(_, state, units) return units <= state.room end

  function slots.has(spec, lease)
    local expires = redis.call('ZSCORE', spec.key, lease)
    return expires and tonumber(expires) > now
  end

  -- Take a slot; or, if `is_renewal`, start its lease anew, with the part that has it.
  function slots.enter(spec, lease, is_renewal)
    local before = tonumber(redis.call('ZSCORE', spec.key, lease) or 0)
    local old = before > 0 and take_from_part(spec, lease, before) or nil
    local part = spec.part
    if is_renewal then part = old end
    tidy(spec)
    redis.call('ZADD', spec.key, digits(now + spec.ttl), lease)
    redis.call('PEXPIRE', spec.key, lasting(last_end(spec)))
    if not part then return end
    redis.call('ZADD', spec.parts, 0, entry(part, now + spec.ttl, lease))
    local claims = claims_of(spec)
    local claim = claims[part]
    if claim and claim.ends > now and before <= now and not is_renewal then
      put_claim(spec, claims, claim.units - 1, claim.ends, claim.limit)
    end
    redis.call('PEXPIRE', spec.parts, lasting(all_over(spec, claims)))
  end

  function slots.leave(spec, lease)
    local ends = tonumber(redis.call('ZSCORE', spec.key, lease) or 0)
    if ends > 0 then
      redis.call('ZREM', spec.key, lease)
      take_from_part(spec, lease, ends)
    end
    return ends > now
  end

  -- Remember that `units` did not fit, if they were guaranteed.
  function slots.refuse(spec, state, units)
    if not spec.lends or spec.share == 0 or units > spec.most then return end
    local missing = spec.share - used_by(spec, spec.part, now)
    local wanted, limit = min(units, missing), spec.quota
    if wanted <= state.room then return end
    local claim = state.claims[spec.part]
    if claim and claim.ends > now then
      wanted, limit = min(claim.units + wanted, missing), max(claim.limit, limit)
    end
    put_claim(spec, state.claims, wanted, now + CLAIM, limit)
    redis.call('PEXPIRE', spec.parts, lasting(all_over(spec, state.claims)))
  end

  function slots.tell(spec, state, units)
    local free_at = ''
    if units <= state.room then
      free_at = digits(now)
    elseif units <= spec.most then
      free_at = digits(room_at(spec, state, units))
    end
    return format('%.0f,%.0f,', state.room, all_over(spec, state.claims)) .. free_at
  end

  return slots
end
