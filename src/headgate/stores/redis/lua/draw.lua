-- Take units out of a pot, if it has as many.
--
-- KEYS   the pot: `units,lapses at`
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the units
-- reply  what is left in it, or nil if it had not as many

--@ clock numbers pots

local units, lapses = read_pot(KEYS[1])
local asked = tonumber(ARGV[2])
if asked > units then return false end
if asked > 0 then write_pot(KEYS[1], units - asked, lapses) end
return units - asked
