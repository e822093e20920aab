-- Clearing up after the dead, in bounded steps. The end of a session is one change; its claims follow.

-- Remove claims of a session that is over, at most `limit`, and the session itself after the last. How many there were.
local function bury(session, limit)
  local key = P .. 'session:' .. session
  local removed, cursor = 0, '0'
  repeat
    local page = call('HSCAN', key, cursor, 'MATCH', 'c:*', 'COUNT', 200)
    cursor = page[1]
    for at = 1, #page[2], 2 do
      if removed >= limit then
        return removed
      end
      local id, lock = string.sub(page[2][at], 3), string.match(page[2][at + 1], '\n(.*)$')
      local row, is_granted = find(lock, id)
      if row then
        depart(lock, id, row, is_granted, is_granted and 'expired' or nil)
      else
        call('HDEL', key, page[2][at])
      end
      removed = removed + 1
    end
  until cursor == '0'
  for _, id in ipairs(call('SMEMBERS', P .. 'watching:' .. session)) do
    call('DEL', P .. 'watch:' .. session .. ':' .. id, P .. 'mail:' .. session .. ':' .. id)
    call('ZREM', P .. 'watches', session .. ' ' .. id)
  end
  call('DEL', key, P .. 'gone:' .. session, P .. 'waits:' .. session, P .. 'watching:' .. session)
  call('ZREM', P .. 'sessions', session)
  return removed
end

-- The clock was set back. What would live longer for that is bounded again: sessions, and grants that end by themselves.
local function end_in_time()
  for _, session in ipairs(call('ZRANGE', P .. 'sessions', 0, -1)) do
    living(session)
  end
  for _, member in ipairs(call('ZRANGE', P .. 'mortal', 0, -1)) do
    local id, lock = string.match(member, '^(%S+) (.*)$')
    local row, is_granted = find(lock, id)
    local session = row and is_granted and living(row[SESSION])
    if session and row[DIES] > now + math.max(row[MAX_HOLD], session[2]) then
      row[DIES] = now + math.max(row[MAX_HOLD], session[2])
      put_granted(lock, id, row, session[2])
    end
  end
end

-- Remove what has died, at most `limit` claims, and pass on what it held.
-- Whether there is more to do, and in how many ms the next session or claim can die (-1 if none can).
local function sweep(limit)
  local left = limit
  for _, member in ipairs(call('ZRANGEBYSCORE', P .. 'mortal', '-inf', text(now), 'LIMIT', 0, limit)) do
    local id, lock = string.match(member, '^(%S+) (.*)$')
    local row, is_granted = find(lock, id)
    if row and is_granted and row[DIES] > 0 and row[DIES] <= now then
      retire(lock, id, row)
      pass_on(lock)
    end
    call('ZREM', P .. 'mortal', member)
    left = left - 1
  end
  for _, session in ipairs(call('ZRANGEBYSCORE', P .. 'sessions', '-inf', text(now), 'LIMIT', 0, limit)) do
    if left <= 0 then
      return 1, 0
    end
    left = left - bury(session, left)
  end
  if left <= 0 then
    return 1, 0
  end
  local next_death = -1
  for _, key in ipairs({'sessions', 'mortal'}) do
    local first = call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')
    if first[2] then
      local due = math.max(0, math.ceil(tonumber(first[2]) - now))
      next_death = next_death < 0 and due or math.min(next_death, due)
    end
  end
  return 0, next_death
end
