-- Put units into a pot.
--
-- KEYS   the pot: `units,lapses at`
-- ARGV   1: microseconds since the epoch, or '' for the server's clock
--        2: the units  3: microseconds until it lapses
-- reply  what is in it

--@ clock numbers pots

local units, lapses = read_pot(KEYS[1])
units, lapses = min(MOST, units + tonumber(ARGV[2])), max(lapses, now + tonumber(ARGV[3]))
write_pot(KEYS[1], units, lapses)
return units
