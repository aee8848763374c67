-- Slots: a sorted set of leases by the instant at which they run out. Not consumption: they stand
-- beside whatever else a counter holds, in a key of their own.
build.S = function()
  local slots = {}

  local function live(spec, place)
    local found = redis.call('ZRANGEBYSCORE', spec.key, '(' .. digits(now), '+inf', 'WITHSCORES',
      'LIMIT', place - 1, 1)
    return found[2] and tonumber(found[2])
  end

  function slots.open(spec)
    return { used = redis.call('ZCOUNT', spec.key, '(' .. digits(now), '+inf') }
  end

  function slots.fits(spec, state, units) return state.used + units <= spec.quota end

  function slots.has(spec, lease)
    local expires = redis.call('ZSCORE', spec.key, lease)
    return expires and tonumber(expires) > now
  end

  function slots.enter(spec, lease)
    redis.call('ZREMRANGEBYSCORE', spec.key, '-inf', digits(now))
    redis.call('ZADD', spec.key, digits(now + spec.ttl), lease)
    local last = redis.call('ZRANGE', spec.key, -1, -1, 'WITHSCORES')
    redis.call('PEXPIRE', spec.key, lasting(tonumber(last[2])))
  end

  function slots.tell(spec, state, units)
    local last = state.used > 0 and live(spec, state.used) or 0
    local missing = state.used + units - spec.quota
    local free_at = ''
    if units <= spec.quota then free_at = digits(missing > 0 and live(spec, missing) or now) end
    return format('%.0f,%.0f,', state.used, last) .. free_at
  end

  return slots
end
