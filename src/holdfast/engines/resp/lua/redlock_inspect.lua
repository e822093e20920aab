-- Who holds locks on this node.
-- ARGV[1], … locks
-- Returns for each {claim id, who, token, since in ms, ms for which it has been held} or nil.
--@use namespace
local found = {}
for at, lock in ipairs(ARGV) do
  local row = call('HMGET', P .. 'lock:' .. lock, 'claim', 'who', 'token', 'since')
  found[at] = row[1] and {row[1], row[2], row[3], row[4], text(now - tonumber(row[4]))} or false
end
return found
