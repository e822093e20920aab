-- The claims that a session has on record: one page.
-- ARGV[1] session  ARGV[2] cursor
-- Returns {next cursor, {claim id, lock, …}}.
--@use namespace
local page = call('HSCAN', P .. 'session:' .. ARGV[1], ARGV[2], 'MATCH', 'c:*', 'COUNT', 1000)
local claims = {}
for at = 1, #page[2], 2 do
  claims[#claims + 1] = string.sub(page[2][at], 3)
  claims[#claims + 1] = string.match(page[2][at + 1], '\n(.*)$')
end
return {page[1], claims}
