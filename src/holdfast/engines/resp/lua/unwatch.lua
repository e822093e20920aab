-- End a watch and drop what it has not fetched.
-- ARGV[1] session  ARGV[2] watch id
-- Returns {'done', 0, -1}.
local P, call = KEYS[1], redis.call
call('DEL', P .. 'watch:' .. ARGV[1] .. ':' .. ARGV[2], P .. 'mail:' .. ARGV[1] .. ':' .. ARGV[2])
call('SREM', P .. 'watching:' .. ARGV[1], ARGV[2])
call('ZREM', P .. 'watches', ARGV[1] .. ' ' .. ARGV[2])
return {'done', 0, -1}
