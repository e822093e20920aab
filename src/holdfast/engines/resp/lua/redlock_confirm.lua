-- Write a grant's token back, only if this claim still holds the node, and only if the node has not proposed a higher
-- one: then its answer was not heard, and what it knows of earlier grants is not in the token.
-- ARGV[1] claim id  ARGV[2] lock  ARGV[3] token
-- Returns 1, or 0 if that is not so.
--@use namespace
local key = P .. 'lock:' .. ARGV[2]
local found = call('HMGET', key, 'claim', 'token')
if found[1] ~= ARGV[1] or tonumber(found[2]) > tonumber(ARGV[3]) then
  return 0
end
if (tonumber(call('GET', P .. 'last')) or 0) < tonumber(ARGV[3]) then
  call('SET', P .. 'last', ARGV[3])
end
call('HSET', key, 'token', ARGV[3])
return 1
