-- A claim as it is kept: an array, packed. `lock:<lock>` holds the granted ones by claim id, and under the empty
-- field what they are: 'x' ('m' if it ends by itself), 's' or the number of permits. `wait:<lock>` holds those in line, `line:<lock>` their order.
local SESSION, OWNER, MODE, ORDER, SINCE, TOKEN, SLOT, DIES, LIMIT, THREAD, NOTE, TICKET, MAX_HOLD =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13

local pack, unpack_row = cmsgpack.pack, cmsgpack.unpack

local function mark(row)
  return row[LIMIT] > 0 and text(row[LIMIT]) or row[MODE] == 'x' and row[DIES] > 0 and 'm' or row[MODE]
end

-- Times in ms, whatever a max_hold is.
local function remember_end(lock, id, row)
  if row[DIES] > 0 then
    call('ZADD', P .. 'mortal', text(row[DIES]), id .. ' ' .. lock)
    touch(P .. 'mortal', row[DIES] - now + 60000)
  end
end

local function put_granted(lock, id, row, ttl)
  local key = P .. 'lock:' .. lock
  call('HSET', key, '', mark(row), id, pack(row))
  touch(key, keep_for(ttl))
  remember_end(lock, id, row)
end

-- The answer that a grant gets: its token, its slot or -1, what is left of max_hold in ms or -1.
local function granted(row)
  return {'granted', text(row[TOKEN]), row[SLOT], row[DIES] > 0 and row[DIES] - now or -1}
end
