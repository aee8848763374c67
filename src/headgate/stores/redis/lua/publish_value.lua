-- Publish the value of one origin, and read those of all.
--
-- KEYS   the hash of published values: origin -> `expires at,value,weight,microseconds it lasts`. A
--        value that expires later than twice that from now was published before the clock stepped
--        back, and counts no more: its origin may be gone.
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the origin  3: its value  4: its weight, or '' only to read  5: microseconds until that
--        lapses  6: the most origins that are remembered
-- reply  the origin, the value and the weight of each that has not lapsed, one after the other

--@ clock numbers

local key, origin, value, weight = KEYS[1], ARGV[2], ARGV[3], ARGV[4]
local ttl, most = tonumber(ARGV[5]), tonumber(ARGV[6])
local tells = weight ~= ''
local told, lapsed, origins, latest = {}, {}, 0, 0

local function add(one, its_value, its_weight, lapses)
  told[#told + 1], told[#told + 2], told[#told + 3] = one, its_value, its_weight
  origins, latest = origins + 1, max(latest, lapses)
end

local known = redis.call('HGETALL', key)
for i = 1, #known, 2 do
  local _, _, lapses, its_value, its_weight, lasts =
    find(known[i + 1], '^(%d+),([^,]+),([^,]+),(%d+)$')
  lapses = tonumber(lapses or 0)
  if lapses <= now or lapses - now > 2 * tonumber(lasts) then
    lapsed[#lapsed + 1] = known[i]
  elseif known[i] ~= origin or not tells then
    add(known[i], its_value, its_weight, lapses)
  else
    most = most + 1  -- it has its place already
  end
end
if not tells then return told end

if #lapsed > 0 then redis.call('HDEL', key, unpack(lapsed)) end
if origins < most then
  local lapses = min(now + ttl, FAR)
  redis.call('HSET', key, origin, table.concat({digits(lapses), value, weight, digits(ttl)}, ','))
  add(origin, value, weight, lapses)
end
if origins > 0 then redis.call('PEXPIRE', key, lasting(latest)) end
return told
