-- Take a lock, or a place in line. Safe to repeat: the claim id says that it is the same request.
-- ARGV[1] claim id  ARGV[2] session  ARGV[3] owner  ARGV[4] lock, as kind:name  ARGV[5] mode, x or s
-- ARGV[6] permits, 0 if not counted  ARGV[7] 1 to wait in line, 2 to do so although the owner has another claim
-- ARGV[8] max_hold in ms, 0 for none  ARGV[9] note  ARGV[10] thread  ARGV[11] for how many ms keys are kept
-- Returns the token if that is all there is to say, else {'granted', token, slot or -1, ms left of max_hold or -1},
-- {'place', position, who is in the way}, {'refused', who}, {'gone', reason}, {'over'}, {'deadlock', links}, {'entangled',
-- how many looks a search for a deadlock may take}, {'limit', the other limit} or the error SPENT.
local P, call, id, lock = KEYS[1], redis.call, ARGV[1], ARGV[4]
local stamp = call('TIME')
local now_us = stamp[1] * 1000000 + stamp[2]
local now = math.floor(now_us / 1000)
local session_key = P .. 'session:' .. ARGV[2]
local lock_key = P .. 'lock:' .. lock
local expires = call('HGET', session_key, 'expires')
if not expires or tonumber(expires) <= now then
  return {'over'}
end

-- The two ways that are taken nearly always, in as few steps as there can be. What follows says the same at length.
-- Both need a number from the clock; if that is behind the last one, the next one is counted.
local token = stamp[1] .. string.sub('00000' .. stamp[2], -6)
local LONGEST = 1e13
local line, gone, watches = P .. 'line:' .. lock, P .. 'gone:' .. ARGV[2], P .. 'watches'

-- Nobody holds it, nobody stands in line, nobody watches, nothing of this session was ever taken back, and it does not
-- end by itself: then it is granted.
if ARGV[8] == '0' and call('EXISTS', lock_key, line, gone, watches) == 0 then
  local last = call('GETSET', P .. 'last', token)
  if not last or tonumber(last) < now_us then
    local limit = tonumber(ARGV[6])
    local row = {ARGV[2], ARGV[3], ARGV[5], now_us, now, now_us, -1, 0, limit, ARGV[10], ARGV[9], '', 0}
    local mark = ARGV[5]
    if limit > 0 then
      row[7], mark = 0, ARGV[6]
    end
    call('HSET', lock_key, '', mark, id, cmsgpack.pack(row))
    call('PEXPIRE', lock_key, ARGV[11])
    call('HSET', session_key, 'c:' .. id, ARGV[3] .. '\n' .. lock)
    return limit > 0 and {'granted', token, 0, -1} or token
  end
  call('SET', P .. 'last', last)
end

-- One holder has it alone and lives, nobody watches, and the owner has no other claim: then it is last in line.
if ARGV[7] == '1' and ARGV[6] == '0' and call('EXISTS', gone, watches) == 0 then
  local held = call('HGETALL', lock_key)
  local at = held[1] == '' and 3 or 1
  local holder = #held == 4 and held[5 - at] == 'x' and held[at] ~= id and cmsgpack.unpack(held[at + 1])
  local its = holder and call('HMGET', P .. 'session:' .. holder[1], 'expires', 'app', 'host', 'pid', 'ttl')
  -- One that expires later than its ttl from now was there when the clock was set back: see `living`.
  if its and its[1] and tonumber(its[1]) > now and tonumber(its[1]) <= now + its[5] then
    local last = call('GETSET', P .. 'last', token)
    local number = last and tonumber(last) or 0
    local row = {ARGV[2], ARGV[3], ARGV[5], now_us, now, 0, -1, 0, 0, ARGV[10], ARGV[9], '', math.min(tonumber(ARGV[8]), LONGEST)}
    if number < now_us and call('HSETNX', P .. 'wait:' .. lock, id, cmsgpack.pack(row)) == 1 then
      local whose = ARGV[3] .. '\n' .. lock
      call('ZADD', line, token, id)
      call('HSET', P .. 'waits:' .. ARGV[2], id, whose)
      call('HSET', session_key, 'c:' .. id, whose)
      local ms = tonumber(ARGV[11])
      for _, key in ipairs({line, P .. 'wait:' .. lock, P .. 'waits:' .. ARGV[2]}) do
        if call('PTTL', key) < ms - 20000 then
          call('PEXPIRE', key, ms)
        end
      end
      return {'place', call('ZCARD', line), {
        held[at], holder[2], its[2], its[3], its[4], holder[10], holder[11], holder[5], now - holder[5], holder[3],
        holder[6], holder[7], string.match(lock, '^[^:]*:(.*)$'), 0,
      }}
    end
    if number >= now_us then
      call('SET', P .. 'last', last)
    end
  end
end

--@use namespace
--@use rows
local session_id, owner, limit, ttl = ARGV[2], ARGV[3], tonumber(ARGV[6]), tonumber(call('HGET', session_key, 'ttl'))

local function new_row(order, token, slot)
  local max_hold = math.min(tonumber(ARGV[8]), LONGEST)
  local dies = token > 0 and max_hold > 0 and now + max_hold or 0
  return {session_id, owner, ARGV[5], order, now, token, slot, dies, limit, ARGV[10], ARGV[9], '', max_hold}
end

local function take(slot)
  local number = next_number()
  local row = new_row(number, number, slot)
  put_granted(lock, id, row, ttl)
  call('HSET', session_key, 'c:' .. id, owner .. '\n' .. lock)
  return row
end

--@use sessions
--@use events
--@use line
--@use deadlock
local mine, is_granted = find(lock, id)
if mine then
  if not is_granted then
    keep_place(lock, id, mine)
    pass_on(lock)
    mine, is_granted = find(lock, id)
  end
  return standing(lock, id, mine, is_granted)
end
local reason = call('HGET', P .. 'gone:' .. session_id, id)
if reason then
  return {'gone', reason}
end
if is_spent() then
  return SPENT
end
local first = pass_on(lock) or head(lock)
local blocker = holders(lock, 1)[1] or first
if limit > 0 and blocker and blocker[2][LIMIT] ~= limit then
  return {'limit', blocker[2][LIMIT]}
end
local newcomer = new_row(0, 0, -1)
local slot = not first and room(lock, newcomer)
if slot then
  local row = take(slot)
  tell('granted', lock, id, row)
  return granted(row)
end
local in_the_way = blocker and party(lock, blocker[1], blocker[2]) or false
if ARGV[7] == '0' then
  return {'refused', in_the_way}
end
if ARGV[7] == '2' then
  newcomer[ORDER] = math.max((tonumber(call('GET', P .. 'last')) or 0) + 1, now_us)
  local cycle, too_many = search({id = id, lock = lock, row = newcomer, granted = false, owner = owner})
  if too_many then
    return {'entangled', too_many}
  end
  if cycle then
    local story = {}
    for at, link in ipairs(cycle) do
      story[at] = link[1] .. ' has ' .. link[6] .. ' and waits for ' .. link[7]
    end
    tell('deadlock', lock, id, newcomer, table.concat(story, '; '))
    return {'deadlock', cycle}
  end
end
newcomer[ORDER] = next_number()
call('ZADD', P .. 'line:' .. lock, text(newcomer[ORDER]), id)
call('HSET', P .. 'wait:' .. lock, id, pack(newcomer))
call('HSET', P .. 'waits:' .. session_id, id, owner .. '\n' .. lock)
call('HSET', session_key, 'c:' .. id, owner .. '\n' .. lock)
for _, key in ipairs({'line:' .. lock, 'wait:' .. lock, 'waits:' .. session_id}) do
  touch(P .. key, keep_for(ttl))
end
tell('queued', lock, id, newcomer)
return {'place', call('ZCARD', P .. 'line:' .. lock), in_the_way}
