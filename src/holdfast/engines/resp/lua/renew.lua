-- The heartbeat: keeps the session and the claims that are listed. It never re-creates one that is gone.
-- ARGV[1] session  ARGV[2] 1 if this is the last request of the heartbeat: it also clears away what has died
-- ARGV[3], ARGV[4], … claim id, lock, and the token if it is granted, for each claim that the client knows of
-- Returns {'renewed', ttl in ms, {claim id, reason, …}, {claim ids that are not here}, ms to the next death or -1,
-- number of claims on record} or {'over'}.
--@use namespace
--@use rows
--@use sessions
--@use events
--@use line
--@use death
pass_when_full()
local session = living(ARGV[1])
if not session then
  return {'over'}
end
local key, ttl = P .. 'session:' .. ARGV[1], session[2]
call('HSET', key, 'expires', text(now + ttl))
call('ZADD', P .. 'sessions', text(now + ttl), ARGV[1])
session[1] = now + ttl
if clock_set_back then
  end_in_time()
end
for _, mine in ipairs({key, P .. 'sessions', P .. 'gone:' .. ARGV[1], P .. 'waits:' .. ARGV[1]}) do
  touch(mine, keep_for(ttl))
end
local watching = P .. 'watching:' .. ARGV[1]
for _, id in ipairs(call('SMEMBERS', watching)) do
  touch(P .. 'watch:' .. ARGV[1] .. ':' .. id, keep_for(ttl))
  touch(P .. 'mail:' .. ARGV[1] .. ':' .. id, keep_for(ttl))
  touch(P .. 'watches', keep_for(ttl))
  touch(watching, keep_for(ttl))
end

-- A grant that is a place in the queue here, or has another token, was made in a state that this server has lost: since
-- then another client may have held the lock. It is missing, however well this server knows the claim.
local missing = {}
for at = 3, #ARGV, 3 do
  local id, lock, token = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local packed = call('HGET', P .. 'lock:' .. lock, id)
  if packed and (token == '' or unpack_row(packed)[TOKEN] == tonumber(token)) then
    touch(P .. 'lock:' .. lock, keep_for(ttl))
  elseif token == '' and call('HEXISTS', P .. 'wait:' .. lock, id) == 1 then
    touch(P .. 'wait:' .. lock, keep_for(ttl))
    touch(P .. 'line:' .. lock, keep_for(ttl))
  else
    missing[#missing + 1] = id
  end
end

local more, next_death = 0, -1
if ARGV[2] == '1' then
  more, next_death = sweep(256)
end
return {'renewed', ttl, call('HGETALL', P .. 'gone:' .. ARGV[1]), missing, next_death,
  call('HLEN', key) - SESSION_FIELDS}
