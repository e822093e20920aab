-- Begin to collect events for a watch.
-- ARGV[1] session  ARGV[2] watch id  ARGV[3] kind, empty for all, cell:kind for a cell  ARGV[4] prefix
-- Returns {'done', 0, -1} or {'over'}.
--@use namespace
--@use rows
--@use sessions
local session = living(ARGV[1])
if not session then
  return {'over'}
end
local key = P .. 'watch:' .. ARGV[1] .. ':' .. ARGV[2]
call('HSET', key, 'kind', ARGV[3], 'prefix', ARGV[4])
call('HSETNX', key, 'last', 0)
call('SADD', P .. 'watching:' .. ARGV[1], ARGV[2])
call('ZADD', P .. 'watches', 0, ARGV[1] .. ' ' .. ARGV[2])
for _, mine in ipairs({key, P .. 'watching:' .. ARGV[1], P .. 'watches'}) do
  touch(mine, keep_for(session[2]))
end
return {'done', 0, -1}
