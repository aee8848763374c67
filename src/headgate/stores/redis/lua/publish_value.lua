-- Publish the value of one origin, and read those of all.
--
-- KEYS   the hash of published values: origin -> `expires at,value,weight,microseconds it lasts`. A
--        value that expires later than twice that from now was published before the clock stepped
--        back, and counts no more: its origin may be gone.
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the origin  3: its value  4: its weight, or '' only to read  5: microseconds until that
--        expires  6: the most origins that are remembered
-- reply  the origin, the value and the weight of each that has not expired, one after the other

--@ clock numbers

local key, origin, value, weight = KEYS[1], ARGV[2], ARGV[3], ARGV[4]
local ttl, most = tonumber(ARGV[5]), tonumber(ARGV[6])
local publishes = weight ~= ''
local values, expired, origins, latest = {}, {}, 0, 0

local function add(one, its_value, its_weight, expires)
  values[#values + 1], values[#values + 2], values[#values + 3] = one, its_value, its_weight
  origins, latest = origins + 1, max(latest, expires)
end

local known = redis.call('HGETALL', key)
for i = 1, #known, 2 do
  local _, _, expires, its_value, its_weight, lasts =
    find(known[i + 1], '^(%d+),([^,]+),([^,]+),(%d+)$')
  expires = tonumber(expires or 0)
  if expires <= now or expires - now > 2 * tonumber(lasts) then
    expired[#expired + 1] = known[i]
  elseif known[i] ~= origin or not publishes then
    add(known[i], its_value, its_weight, expires)
  else
    most = most + 1  -- it has its place already
  end
end
if not publishes then return values end

if #expired > 0 then redis.call('HDEL', key, unpack(expired)) end
if origins < most then
  local expires = min(now + ttl, FAR)
  redis.call('HSET', key, origin, table.concat({digits(expires), value, weight, digits(ttl)}, ','))
  add(origin, value, weight, expires)
end
if origins > 0 then redis.call('PEXPIRE', key, lasting(latest)) end
return values
