-- Read a cell.
-- ARGV[1] cell, as kind:name
-- Returns {value, version} or {nil, '0'}.
local found = redis.call('HMGET', KEYS[1] .. 'cell:' .. ARGV[1], 'value', 'version')
return {found[1], found[2] or '0'}
