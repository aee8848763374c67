-- Delete counters and the keys beside them.
--
-- KEYS   the keys
-- ARGV   none
-- reply  0

for i = 1, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 0
