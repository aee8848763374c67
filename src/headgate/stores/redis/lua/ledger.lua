-- The lease ledger: which holder has how many units of a counter leased, and what is known of its
-- usage. A hash beside the counter (see docs/redis-layout.md). What expires by itself is closed in
-- close_expired, and not before the ledger is due: most calls read one holder only.

local MOST_HOLDERS = 1000
local KEPT_LEAST, KEPT_MOST = 60000000, 3600000000  -- microseconds
local ABOUT_ALL = ''    -- the field of the ledger itself; those of holders begin with an h

local function read_account(text)
  local _, _, amount, expires, charged, used, paid, kept, forgotten, place =
    find(text, '^(%d+),(%d+),(%d),(%d+),(%d+),(%d+),(%d+),(.*)$')
  return { amount = tonumber(amount), expires = tonumber(expires), is_charged = charged == '1',
    used = tonumber(used), paid = tonumber(paid), kept = tonumber(kept),
    forgotten = tonumber(forgotten), place = place }
end

local function written_account(account)
  return format('%.0f,%.0f,%d,%.0f,%.0f,%.0f,%.0f,%s', account.amount, account.expires,
    account.is_charged and 1 or 0, account.used, account.paid, account.kept, account.forgotten,
    account.place)
end

local function is_empty(account)
  return account.amount == 0 and account.used == 0 and account.paid == 0
end

local function due_of(account) return account.amount > 0 and account.expires or account.forgotten end

local function open_ledger(key, holder)
  local ledger = { key = beside(key, '^'), own_field = 'h' .. holder, due = FAR, granted = 0,
    holders = 0, ends = 0, known = 0, put = {}, dropped = {} }
  local found = redis.call('HMGET', ledger.key, ABOUT_ALL, ledger.own_field)
  if found[1] then
    local _, _, due, granted, holders, ends, known = find(found[1], '^(%d+),(%d+),(%d+),(%d+),(%d+)$')
    ledger.due, ledger.granted, ledger.holders = tonumber(due), tonumber(granted), tonumber(holders)
    ledger.ends, ledger.known, ledger.is_there = tonumber(ends), tonumber(known), true
  end
  if found[2] then ledger.own = read_account(found[2]) end
  return ledger
end

local function end_lease(ledger, account)
  if account.amount == 0 then return end
  ledger.granted, ledger.holders = ledger.granted - account.amount, ledger.holders - 1
  account.amount = 0
end

local function drop_account(ledger, field)
  ledger.known, ledger.put[field], ledger.dropped[field] = ledger.known - 1, nil, true
end

-- Close the lease of an account if it has expired; the units to charge, and whether to drop it.
local function closed(ledger, account)
  if account.forgotten <= now then
    end_lease(ledger, account)
    return 0, true
  end
  if account.amount == 0 or account.expires > now then return 0, false end
  local charged = account.is_charged and 0 or account.amount
  if charged > 0 then account.paid = charged end
  end_lease(ledger, account)
  account.forgotten, account.is_changed = now + account.kept, true
  return charged, is_empty(account)
end

-- Close all that has expired, forget who was not seen for long; how much is to be charged.
-- A lease that expires later than `ttl` from now, that of the caller, was granted before the clock
-- stepped back (or under a longer ttl, which this shortens: too early is safe).
local function close_expired(ledger, ttl)
  local is_ahead = ttl > 0 and ledger.granted > 0 and ledger.due > now + ttl
  if now < ledger.due and not is_ahead then return 0 end
  local all, charged = redis.call('HGETALL', ledger.key), 0
  ledger.due, ledger.ends = FAR, 0
  for i = 1, #all, 2 do
    local field = all[i]
    if field ~= ABOUT_ALL then
      local account = read_account(all[i + 1])
      if ttl > 0 and account.amount > 0 and account.expires > now + ttl then
        account.expires, account.is_changed = now + ttl, true
        account.forgotten = min(account.forgotten, account.expires + account.kept)
      end
      local units, is_done = closed(ledger, account)
      charged = charged + units
      if is_done then
        drop_account(ledger, field)
      else
        ledger.due = min(ledger.due, due_of(account))
        ledger.ends = max(ledger.ends, account.forgotten)
        if account.is_changed then ledger.put[field] = written_account(account) end
      end
      if field == ledger.own_field then ledger.own = not is_done and account or nil end
    end
  end
  return charged
end

local function has_room(ledger) return ledger.own ~= nil or ledger.known < MOST_HOLDERS end

-- Put the account of the holder back, unless it is empty.
local function keep_account(ledger, account)
  local field = ledger.own_field
  if is_empty(account) then
    if ledger.own then drop_account(ledger, field) end
  elseif has_room(ledger) then
    account.forgotten = max(now, account.amount > 0 and account.expires or 0) + account.kept
    if not ledger.own then ledger.known = ledger.known + 1 end
    ledger.put[field] = written_account(account)
    ledger.due = min(ledger.due, due_of(account))
    ledger.ends = max(ledger.ends, account.forgotten)
  end
end

local function close_ledger(ledger)
  if ledger.known <= 0 then
    if ledger.is_there then redis.call('DEL', ledger.key) end
    return
  end
  local dropped = {}
  for field in pairs(ledger.dropped) do dropped[#dropped + 1] = field end
  if #dropped > 0 then redis.call('HDEL', ledger.key, unpack(dropped)) end
  local put = { ABOUT_ALL, format('%.0f,%.0f,%.0f,%.0f,%.0f', ledger.due, ledger.granted,
    ledger.holders, ledger.ends, ledger.known) }
  for field, text in pairs(ledger.put) do
    put[#put + 1] = field
    put[#put + 1] = text
  end
  redis.call('HSET', ledger.key, unpack(put))
  redis.call('PEXPIRE', ledger.key, lasting(min(ledger.ends, FAR)))
end
