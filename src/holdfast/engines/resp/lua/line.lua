-- Who holds a lock and who is next. A claim is granted exactly when no live claim that conflicts with it came before it.
local OVERHELD = 'it was held longer than max_hold'

-- A claim on this lock, and whether it is granted; nil if it is not here.
local function find(lock, id)
  local packed = call('HGET', P .. 'lock:' .. lock, id)
  if packed then
    return unpack_row(packed), true
  end
  packed = call('HGET', P .. 'wait:' .. lock, id)
  if packed then
    return unpack_row(packed), false
  end
end

local function drop_granted(lock, id, row)
  local key = P .. 'lock:' .. lock
  if call('HDEL', key, id) == 1 and call('HLEN', key) <= 1 then
    call('DEL', key)
  end
  call('HDEL', P .. 'session:' .. row[SESSION], 'c:' .. id)
  if row[DIES] > 0 then
    call('ZREM', P .. 'mortal', id .. ' ' .. lock)
  end
end

local function drop_waiting(lock, id, row)
  call('ZREM', P .. 'line:' .. lock, id)
  call('HDEL', P .. 'wait:' .. lock, id)
  call('HDEL', P .. 'waits:' .. row[SESSION], id)
  call('HDEL', P .. 'session:' .. row[SESSION], 'c:' .. id)
end

-- Remove a grant that has died. One whose session lives was held too long or broken: its holder is told.
local function retire(lock, id, row)
  if living(row[SESSION]) then
    if call('HEXISTS', P .. 'gone:' .. row[SESSION], id) == 0 then
      bury_name(row[SESSION], id, OVERHELD)
    end
    notify(row[SESSION], 'gone', id)
  end
  drop_granted(lock, id, row)
  tell('expired', lock, id, row)
end

-- The live grants, as {id, row}; at most `most`. The dead ones that are met are removed.
local function holders(lock, most)
  local found = {}
  local fields = call('HGETALL', P .. 'lock:' .. lock)
  for at = 1, #fields, 2 do
    if fields[at] ~= '' then
      local row = unpack_row(fields[at + 1])
      if lives(row) then
        found[#found + 1] = {fields[at], row}
        if #found == most then
          break
        end
      else
        retire(lock, fields[at], row)
      end
    end
  end
  return found
end

-- The first live claim in line, as {id, row}. Dead ones before it are removed.
local function head(lock)
  while true do
    local id = call('ZRANGE', P .. 'line:' .. lock, 0, 0)[1]
    if not id then
      return nil
    end
    local packed = call('HGET', P .. 'wait:' .. lock, id)
    local row = packed and unpack_row(packed)
    if row and lives(row) then
      return {id, row}
    end
    if row then
      drop_waiting(lock, id, row)
    else
      call('ZREM', P .. 'line:' .. lock, id)
    end
  end
end

-- Put a waiting claim back where it was in the queue, if the queue was evicted alone.
local function keep_place(lock, id, row)
  local line = P .. 'line:' .. lock
  if not call('ZSCORE', line, id) then
    call('ZADD', line, text(row[ORDER]), id)
    touch(line, keep_for(living(row[SESSION])[2]))
  end
end

local function free_slot(taken, limit)
  if #taken >= limit then
    return nil
  end
  local used = {}
  for _, holder in ipairs(taken) do
    used[holder[2][SLOT]] = true
  end
  local slot = 0
  while used[slot] do
    slot = slot + 1
  end
  return slot
end

-- The slot that a claim like this could have now (-1 where there are none); nil if live grants are in its way.
local function room(lock, row)
  if row[LIMIT] > 0 then
    return free_slot(holders(lock), row[LIMIT])
  end
  if row[MODE] == 's' then
    local held = call('HGET', P .. 'lock:' .. lock, '')
    if not held or held == 's' then
      return -1
    end
  end
  return #holders(lock, 1) == 0 and -1 or nil
end

-- Make a claim in line the holder, by somebody else's request: it lives as long as its session's own proof of life.
local function grant(lock, id, row, slot)
  call('ZREM', P .. 'line:' .. lock, id)
  call('HDEL', P .. 'wait:' .. lock, id)
  call('HDEL', P .. 'waits:' .. row[SESSION], id)
  row[TOKEN], row[SLOT], row[SINCE] = next_number(), slot, now
  row[DIES] = row[MAX_HOLD] > 0 and now + row[MAX_HOLD] or 0
  put_granted(lock, id, row, living(row[SESSION])[2])
  -- The whole grant, so that the waiter need not ask; one that ends by itself has to, to know when.
  local ends = row[DIES] > 0 and '1' or '0'
  notify(row[SESSION], 'granted', id .. ' ' .. text(row[TOKEN]) .. ' ' .. row[SLOT] .. ' ' .. ends)
  tell('granted', lock, id, row)
end

-- Grant whoever is next: one writer, the leading run of readers, or free permits. Wakes exactly those.
-- Returns the head of the line after that, if it is known.
local function pass_on(lock)
  while true do
    local first = head(lock)
    local slot = first and room(lock, first[2])
    if not slot or is_spent() then
      return first
    end
    grant(lock, first[1], first[2], slot)
    if first[2][LIMIT] == 0 and first[2][MODE] == 'x' then
      return nil
    end
  end
end

-- Remove a claim and let those behind it go on.
local function depart(lock, id, row, is_granted, event)
  if is_granted then
    drop_granted(lock, id, row)
  else
    drop_waiting(lock, id, row)
  end
  if event then
    tell(event, lock, id, row)
  end
  pass_on(lock)
end

-- How a claim that is here stands: granted, gone, or its place in line and who is in its way.
local function standing(lock, id, row, is_granted)
  if row[DIES] > 0 and row[DIES] <= now then
    -- Its own time is over, or the operator's patience is.
    return {'gone', call('HGET', P .. 'gone:' .. row[SESSION], id) or OVERHELD}
  end
  if is_granted then
    return granted(row)
  end
  local blocker = holders(lock, 1)[1] or head(lock)
  local rank = call('ZRANK', P .. 'line:' .. lock, id) or 0
  return {'place', rank + 1, blocker and party(lock, blocker[1], blocker[2]) or false}
end
