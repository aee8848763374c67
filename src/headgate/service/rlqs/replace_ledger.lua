-- Replace a ledger, if it is still the one that its successor was made from.
--
-- KEYS   1: the ledger, a hash of its version and its text
-- ARGV   1: the version that it must have, '' if there must be none
--        2: the new version  3: the new text  4: milliseconds to live
-- reply  now in microseconds; 1 if it was replaced, or 0, its version and its text ('' if none)

local expected, version, text, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local held = redis.call('HMGET', KEYS[1], 'version', 'text')
if (held[1] or '') ~= expected then
  return { now, 0, held[1] or '', held[2] or '' }
end
redis.call('HSET', KEYS[1], 'version', version, 'text', text)
redis.call('PEXPIRE', KEYS[1], life)
return { now, 1, version, '' }
