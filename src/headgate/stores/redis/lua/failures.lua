-- What went wrong, as an error reply for one check alone; and whether the server takes no writes at
-- all: then nothing of the whole call was charged, and the whole call fails.
local function failure(problem)
  local text = type(problem) == 'table' and problem.err or tostring(problem)
  local is_for_all = false
  for _, code in ipairs({ 'READONLY', 'OOM', 'MISCONF', 'NOREPLICAS' }) do
    local begins, _, rest = string.find(text, code .. '(.*)')
    if begins and begins < 60 then is_for_all, text = true, code .. rest end
  end
  return redis.error_reply(text), is_for_all
end
