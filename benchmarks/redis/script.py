"""The plainest GCRA in Lua: the measure of what one check costs Redis itself.

One integer string a key, which holds the theoretical arrival time in microseconds of the server's
clock. The reply is an integer too: how far that time lies ahead after an admitted check, and minus
the time to wait, less one, after a refused one. Whoever sends it can work out the rest.
"""

from __future__ import annotations

MICROSECONDS = 1_000_000
CHECKS_IN_A_BATCH = 64

SINGLE = """
local increment, tolerance = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tat = tonumber(redis.call('GET', KEYS[1])) or now
if tat < now then tat = now end
tat = tat + increment
local ahead = tat - now
if ahead > tolerance then return tolerance - ahead - 1 end
redis.call('SET', KEYS[1], tat, 'PX', math.ceil(ahead / 1000))
return ahead
"""

BATCH = """
local increment, tolerance = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local replies = {}
for i = 1, #KEYS do
    local tat = tonumber(redis.call('GET', KEYS[i])) or now
    if tat < now then tat = now end
    tat = tat + increment
    local ahead = tat - now
    if ahead > tolerance then
        replies[i] = tolerance - ahead - 1
    else
        redis.call('SET', KEYS[i], tat, 'PX', math.ceil(ahead / 1000))
        replies[i] = ahead
    end
end
return replies
"""


def arguments(amount: int, seconds: int) -> tuple[int, int]:
    """The increment and the tolerance, in microseconds, of *amount* in *seconds*."""
    increment = seconds * MICROSECONDS // amount
    return increment, increment * amount
