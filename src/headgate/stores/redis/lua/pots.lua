-- A pot is a number and the instant at which it is gone.

-- What is in a pot, and when it lapses; nothing, if it has.
local function read_pot(key)
  local text = redis.call('GET', key)
  local _, _, units, lapses = find(text or '', '^(%d+),(%d+)$')
  lapses = tonumber(lapses or 0)
  if lapses <= now then return 0, lapses end
  return tonumber(units), lapses
end

local function write_pot(key, units, lapses)
  redis.call('SET', key, digits(units) .. ',' .. digits(lapses), 'PX', lasting(min(lapses, FAR)))
end
