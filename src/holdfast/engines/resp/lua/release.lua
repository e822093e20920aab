-- Give a granted claim back, and make the next living waiter the holder.
-- ARGV[1] claim id  ARGV[2] session  ARGV[3] lock  ARGV[4] its token, or nothing if the client does not know it
-- ARGV[5] 1 if this is a repeat whose first reply was lost
-- Returns 1; 'claim id token' if it went on to a claim of the same session, which nobody else is told; 2 if it was done
-- before, by a try that may have gone on so; or {'gone', reason}.
local P, call, id, session_id, lock, token = KEYS[1], redis.call, ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local stamp = call('TIME')
local now_us = stamp[1] * 1000000 + stamp[2]
local lock_key, session_key = P .. 'lock:' .. lock, P .. 'session:' .. session_id
local line, wait_key = P .. 'line:' .. lock, P .. 'wait:' .. lock
local mine = call('HMGET', lock_key, '', id)
local expires = call('HGET', session_key, 'expires')
local alive = expires and tonumber(expires) > math.floor(now_us / 1000)
-- Not if Redis came back with an older state, and granted it anew.
local same = mine[2] and (not token or cmsgpack.unpack(mine[2])[6] == token)

-- Make the first in line the holder, in as few steps as there can be; nil, and nothing is changed, unless it is a living
-- claim to the lock alone, for as long as it likes.
local function hand_on(next_id, packed)
  local row = packed and cmsgpack.unpack(packed)
  local its = row and row[3] == 'x' and row[13] == 0 and call('HMGET', P .. 'session:' .. row[1], 'expires', 'ttl', 'secret')
  if not its or not its[1] or tonumber(its[1]) <= math.floor(now_us / 1000) then
    return nil
  end
  local token = stamp[1] .. string.sub('00000' .. stamp[2], -6)
  local last = call('GETSET', P .. 'last', token)
  if last and tonumber(last) >= now_us then
    call('SET', P .. 'last', last)
    return nil
  end
  row[5], row[6] = math.floor(now_us / 1000), now_us
  call('HDEL', wait_key, next_id)
  call('HDEL', P .. 'waits:' .. row[1], next_id)
  call('HSET', lock_key, '', 'x', next_id, cmsgpack.pack(row))
  call('HDEL', lock_key, id)
  call('HDEL', session_key, 'c:' .. id)
  local ms = 2 * its[2] + 60000
  if call('PTTL', lock_key) < ms - 20000 then
    call('PEXPIRE', lock_key, ms)
  end
  if row[1] == session_id then
    return next_id .. ' ' .. token
  end
  -- Signed, as `notify` does it.
  local notice = 'granted ' .. next_id .. ' ' .. token .. ' -1 0'
  call('PUBLISH', P .. 'notices:' .. row[1], notice .. ' ' .. redis.sha1hex(its[3] .. notice .. its[3]))
  return 1
end

-- Nobody watches and nothing was taken back. A lock that is marked so is this claim's alone, for as long as it likes.
if same and alive and call('EXISTS', P .. 'gone:' .. session_id, P .. 'watches') == 0 then
  if mine[1] == 'x' then
    local first = call('ZPOPMIN', line)
    if not first[1] then
      call('DEL', lock_key)
      call('HDEL', session_key, 'c:' .. id)
      return 1
    end
    local handed = hand_on(first[1], call('HGET', wait_key, first[1]))
    if handed then
      return handed
    end
    call('ZADD', line, first[2], first[1])
  elseif call('EXISTS', line) == 0 and cmsgpack.unpack(mine[2])[8] == 0 then
    if call('HLEN', lock_key) <= 2 then
      call('DEL', lock_key)
    else
      call('HDEL', lock_key, id)
    end
    call('HDEL', session_key, 'c:' .. id)
    return 1
  end
end

--@use namespace
--@use rows
--@use sessions
--@use events
--@use line
pass_when_full()
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
  return ARGV[5] == '1' and 2 or {'gone', 'the engine no longer knows it'}
end
if not is_granted then
  -- It came back as a place in the queue, which no client waits for any more.
  depart(lock, id, row, false)
  return {'gone', 'Redis came back with an older state, in which it was not granted'}
end
depart(lock, id, row, is_granted, 'released')
if not same then
  return {'gone', 'Redis came back with an older state, and granted it anew'}
end
if row[DIES] > 0 and row[DIES] <= now then
  return {'gone', OVERHELD}
end
return 1
