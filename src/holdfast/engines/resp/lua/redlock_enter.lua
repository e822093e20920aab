-- Take a lock on this node. Safe to repeat: the claim id says that it is the same request.
-- ARGV[1] claim id  ARGV[2] lock, as kind:name  ARGV[3] ttl in ms  ARGV[4] the token that the client hopes for
-- ARGV[5] max_hold in ms, 0 for none  ARGV[6] who it is, for people
-- Returns {'granted', token, ms left of max_hold or -1}, {'taken', claim id, who, token, since in ms},
-- {'gone', reason}, or {'spent'} if no token is left.
local P, call, id, key = KEYS[1], redis.call, ARGV[1], KEYS[1] .. 'lock:' .. ARGV[2]
local stamp = call('TIME')
local now_us, hoped = stamp[1] * 1000000 + stamp[2], tonumber(ARGV[4])
local now = math.floor(now_us / 1000)

-- Nobody holds it, it was not withdrawn, it does not end by itself, and the client's number is a good one: in as few
-- steps as there can be. What follows says the same at length.
if ARGV[5] == '0' and hoped > now_us and hoped <= now_us + 100000 and call('EXISTS', key, P .. 'gone:' .. id) == 0 then
  local last = call('GETSET', P .. 'last', ARGV[4])
  if not last or tonumber(last) < hoped then
    local since = stamp[1] .. string.sub('00000' .. stamp[2], -6, -4)
    call('HSET', key, 'claim', id, 'who', ARGV[6], 'token', ARGV[4], 'since', since, 'dies', '0', 'ttl', ARGV[3])
    call('PEXPIRE', key, ARGV[3])
    return {'granted', ARGV[4], -1}
  end
  call('SET', P .. 'last', last)
end

local function text(number)
  return string.format('%.0f', number)
end

local reason = call('GET', P .. 'gone:' .. id)
if reason then
  return {'gone', reason}
end
local found = call('HMGET', key, 'claim', 'who', 'token', 'since', 'dies', 'ttl')
if found[1] and found[1] ~= id then
  -- A key that expires later than its ttl from now was there when this node's clock was set back: it would be kept, with
  -- its holder dead or not, for as long as the clock needs to catch up.
  if found[6] and call('PTTL', key) > tonumber(found[6]) then
    call('PEXPIRE', key, found[6])
  end
  return {'taken', found[1], found[2], found[3], found[4]}
end
local max_hold = math.min(tonumber(ARGV[5]), 1e13)
local ttl, dies = tonumber(ARGV[3]), tonumber(found[5]) or 0
if not found[1] then
  local number = math.max((tonumber(call('GET', P .. 'last')) or 0) + 1, now_us)
  if number > 9007199254740991 then
    return {'spent'}
  end
  -- If all nodes can take the client's number it is confirmed without a second round. Never far ahead of the clock:
  -- what is lost with this node's memory must not have been ahead of what it mints afterwards.
  if hoped > number and hoped <= now_us + 100000 then
    number = hoped
  end
  call('SET', P .. 'last', text(number))
  dies = max_hold > 0 and now + max_hold or 0
  found[3] = text(number)
  call('HSET', key, 'claim', id, 'who', ARGV[6], 'token', found[3], 'since', text(now), 'dies', text(dies), 'ttl', ARGV[3])
end
call('PEXPIRE', key, text(dies > 0 and math.max(1, math.min(ttl, dies - now)) or ttl))
return {'granted', found[3], dies > 0 and math.max(0, dies - now) or -1}
