-- The time in microseconds: the server's own, or the one given (for tests and simulations). Keys
-- live on the server's clock, so with a given one they live at least a minute longer.
local now, slack
if ARGV[1] == '' then
  local time = redis.call('TIME')
  now, slack = time[1] * 1000000 + time[2], 1000
else
  now, slack = tonumber(ARGV[1]), 60000
end
