-- Give a granted claim back, and make the next living waiter the holder.
-- ARGV[1] claim id  ARGV[2] session  ARGV[3] lock  ARGV[4] 1 if this is a repeat whose first reply was lost
-- Returns 1 or {'gone', reason}.
local P, call, id, session_id, lock = KEYS[1], redis.call, ARGV[1], ARGV[2], ARGV[3]
local stamp = call('TIME')
local lock_key, session_key = P .. 'lock:' .. lock, P .. 'session:' .. session_id
local mine = call('HMGET', lock_key, '', id)
local expires = call('HGET', session_key, 'expires')
local alive = expires and tonumber(expires) > stamp[1] * 1000 + math.floor(stamp[2] / 1000)

-- Nobody waits, nobody watches, nothing was taken back, and it does not end by itself: it just goes.
if mine[2] and alive and call('EXISTS', P .. 'line:' .. lock, P .. 'gone:' .. session_id, P .. 'watches') == 0 then
  -- A lock that is marked so is this claim's alone, for as long as it likes.
  local goes = mine[1] == 'x'
  if goes then
    call('DEL', lock_key)
  elseif cmsgpack.unpack(mine[2])[8] == 0 then
    goes = true
    if call('HLEN', lock_key) <= 2 then
      call('DEL', lock_key)
    else
      call('HDEL', lock_key, id)
    end
  end
  if goes then
    call('HDEL', session_key, 'c:' .. id)
    return 1
  end
end

--@use namespace
--@use rows
--@use sessions
--@use events
--@use line
local row, is_granted = find(lock, id)
local reason = call('HGET', P .. 'gone:' .. session_id, id)
if reason then
  if reason ~= 'it was withdrawn' then
    call('HDEL', P .. 'gone:' .. session_id, id)
  end
  if row then
    depart(lock, id, row, is_granted, 'released')
  end
  return {'gone', reason}
end
if not alive then
  return {'gone', 'its session ran out'}
end
if not row then
  -- What is taken away leaves its reason. A repeat that finds neither finds what its first try has done.
  return ARGV[4] == '1' and 1 or {'gone', 'the engine no longer knows it'}
end
if not is_granted then
  return {'gone', 'it was never granted'}
end
depart(lock, id, row, is_granted, 'released')
if row[DIES] > 0 and row[DIES] <= now then
  return {'gone', OVERHELD}
end
return 1
