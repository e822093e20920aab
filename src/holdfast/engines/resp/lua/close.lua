-- End a session: its claims are dead at once, and removed in bounded steps.
-- ARGV[1] session  ARGV[2] how many claims at most
-- Returns {'done', 1 if there is more to remove, -1}.
--@use namespace
--@use rows
--@use sessions
--@use events
--@use line
--@use death
pass_when_full()
local key = P .. 'session:' .. ARGV[1]
local expires = tonumber(call('HGET', key, 'expires'))
if not expires then
  return {'done', 0, -1}
end
call('HSET', key, 'expires', text(math.min(now, expires)))
call('ZADD', P .. 'sessions', text(math.min(now, expires)), ARGV[1])
return {'done', bury(ARGV[1], tonumber(ARGV[2])) >= tonumber(ARGV[2]) and 1 or 0, -1}
