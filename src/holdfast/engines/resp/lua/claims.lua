-- The locks that a session has claims on: one page.
-- ARGV[1] session  ARGV[2] cursor
-- Returns {next cursor, {lock, …}}.
--@use namespace
local page = call('HSCAN', P .. 'session:' .. ARGV[1], ARGV[2], 'MATCH', 'c:*', 'COUNT', 1000)
local locks = {}
for at = 2, #page[2], 2 do
  locks[#locks + 1] = string.match(page[2][at], '\n(.*)$')
end
return {page[1], locks}
