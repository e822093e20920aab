-- Begin a session; a repeat renews it, an id that has run out never comes back.
-- ARGV[1] session  ARGV[2] ttl in ms  ARGV[3] app  ARGV[4] host  ARGV[5] pid
-- ARGV[6] what its notices are signed with
-- Returns {'opened', ttl in ms} or {'over'}.
--@use namespace
local key, ttl = P .. 'session:' .. ARGV[1], math.min(tonumber(ARGV[2]), LONGEST)
local expires = tonumber(call('HGET', key, 'expires'))
if expires and expires <= now then
  return {'over'}
end
call('HSET', key, 'expires', text(now + ttl), 'ttl', text(ttl), 'app', ARGV[3], 'host', ARGV[4], 'pid', ARGV[5],
  'secret', ARGV[6])
touch(key, keep_for(ttl))
call('ZADD', P .. 'sessions', text(now + ttl), ARGV[1])
touch(P .. 'sessions', keep_for(ttl))
return {'opened', text(ttl)}
