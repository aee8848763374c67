-- Exact integers in doubles. Every whole number below 2^53 is one; nothing here leaves them.

local FAR = 9e15        -- the end of time, in microseconds: later instants are written as this one
local MOST = 8e15       -- the largest count: more debt than that is written as this much
local EXACT = 2 ^ 53

local format, sub, find = string.format, string.sub, string.find
local floor, ceil, fmod, min, max = math.floor, math.ceil, math.fmod, math.min, math.max

-- How many milliseconds a key lives that is as new at the instant `ends`.
local function lasting(ends)
  return max(0, ceil((ends - now) / 1000)) + slack
end

-- Decimal digits, all of them: tostring() keeps only fourteen.
local function digits(number)
  return format('%.0f', number)
end

-- The quotient of two whole numbers rounded down, and the rest.
local function divide(a, b)
  local rest = fmod(a, b)
  if rest < 0 then rest = rest + b end
  return (a - rest) / b, rest
end

local function divide_up(a, b)
  local whole, rest = divide(a, b)
  if rest > 0 then whole = whole + 1 end
  return whole
end

-- What rounding took from the product a * b (Dekker), so that a * b = product + error, exactly.
local function product(a, b)
  local p = a * b
  local c = 134217729 * a
  local ah = c - (c - a)
  local al = a - ah
  c = 134217729 * b
  local bh = c - (c - b)
  local bl = b - bh
  return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl
end

-- Whether a * b <= c * d, exactly.
local function product_at_most(a, b, c, d)
  local p, pe = product(a, b)
  local q, qe = product(c, d)
  return p < q or (p == q and pe <= qe)
end

-- a * b / c rounded down, and the rest. The quotient has to be below 2^53; if not, FAR.
local function scale(a, b, c)
  local p = a * b
  if p < EXACT then return divide(p, c) end
  if p / c >= FAR then return FAR, 0 end
  local pe, whole, s, se
  p, pe = product(a, b)
  whole = floor(p / c)
  s, se = product(whole, c)
  local rest = (p - s) + (pe - se)
  while rest < 0 do whole, rest = whole - 1, rest + c end
  while rest >= c do whole, rest = whole + 1, rest - c end
  return whole, rest
end
