-- Take a lock on this node. Safe to repeat: the claim id says that it is the same request.
-- ARGV[1] claim id  ARGV[2] lock, as kind:name  ARGV[3] ttl in ms  ARGV[4] the token that the client hopes for
-- ARGV[5] max_hold in ms, 0 for none  ARGV[6] who it is, for people
-- Returns {'granted', token, ms left of max_hold or -1}, {'taken', claim id, who, token, since in ms} or {'gone', reason}.
--@use namespace
local id, key = ARGV[1], P .. 'lock:' .. ARGV[2]
local reason = call('GET', P .. 'gone:' .. id)
if reason then
  return {'gone', reason}
end
local found = call('HMGET', key, 'claim', 'who', 'token', 'since', 'dies')
if found[1] and found[1] ~= id then
  return {'taken', found[1], found[2], found[3], found[4]}
end
local ttl, dies = tonumber(ARGV[3]), tonumber(found[5]) or 0
if not found[1] then
  local number = math.max((tonumber(call('GET', P .. 'last')) or 0) + 1, now_us)
  -- If all nodes can take the client's number it is confirmed without a second round. Never far ahead of the clock:
  -- what is lost with this node's memory must not have been ahead of what it mints afterwards.
  local hoped = tonumber(ARGV[4])
  if hoped > number and hoped <= now_us + 100000 then
    number = hoped
  end
  call('SET', P .. 'last', text(number))
  dies = tonumber(ARGV[5]) > 0 and now + tonumber(ARGV[5]) or 0
  found[3] = text(number)
  call('HSET', key, 'claim', id, 'who', ARGV[6], 'token', found[3], 'since', text(now), 'dies', text(dies))
end
call('PEXPIRE', key, text(dies > 0 and math.max(1, math.min(ttl, dies - now)) or ttl))
return {'granted', found[3], dies > 0 and math.max(0, dies - now) or -1}
