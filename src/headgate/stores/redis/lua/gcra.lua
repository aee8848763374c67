-- GCRA: a counter is one instant, until which it is in use. A cost moves the instant by the time that
-- the cost takes to refill, and fits if the instant is then at most the whole span after now.
--
-- An instant or a length of time is two numbers: w microseconds, and f ticks of 1/p microsecond.
-- hit.lua has the same arithmetic for p = 1, where f is 0, written out: that is its whole loop.
local function gcra_add(w, f, cost_w, cost_f, p)
  w, f = w + cost_w, f + cost_f
  if f >= p then return w + 1, f - p end
  return w, f
end

local function gcra_within(w, f, last_w, last_f)
  return w < last_w or (w == last_w and f <= last_f)
end
