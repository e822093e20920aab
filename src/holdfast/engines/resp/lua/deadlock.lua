-- Who can never go on. Every claim is released once its owner has all that it waits for; so the owners that will
-- finish are the smallest set such that each waiting claim of theirs is served: a lock by earlier claims that belong to
-- finishers, a permit by fewer than `limit` earlier ones that do not. Whoever is left waits for ever.

-- How much one search looks at: a claim, a session and a lock count as one each, and so do four waits of a session, among
-- which those of an owner are found. All of Redis waits for a script: this is 5 to 25 ms of CPU time,
-- about 50 ms with the longest names.
local MOST_LOOKS = 4000

-- An owner's name begins with its session's id.
local function session_of(owner)
  return string.match(owner, '^([^/]*)/') or ''
end

-- How many looks it takes to find what the owners of one session wait for.
local function looks_for_waits(session)
  return 1 + math.floor(call('HLEN', P .. 'waits:' .. session) / 4)
end

-- The waits of each owner of one session, as {claim id, lock, …}.
local function waits_of(session)
  local waits = {}
  local fields = living(session) and call('HGETALL', P .. 'waits:' .. session) or {}
  for at = 1, #fields, 2 do
    local ends = string.find(fields[at + 1], '\n', 1, true)
    local owner = string.sub(fields[at + 1], 1, ends - 1)
    local mine = waits[owner] or {}
    mine[#mine + 1], mine[#mine + 2] = fields[at], string.sub(fields[at + 1], ends + 1)
    waits[owner] = mine
  end
  return waits
end

-- Everything that the newcomer could wait for, however far away: for each lock the live holders, then the live waiters
-- in their order, as far as one of them is waited for. nil if that takes too many looks. `given` supposes a grant to be
-- another owner's already. What else the newcomer's owner waits for does not matter unless it is given something: no
-- claim waits for ever so far, so all of that comes if this does.
local function gather(newcomer, given)
  local left, lines, by_lock, sessions = MOST_LOOKS, {}, {}, {}
  local owners, found = {[newcomer.owner] = not given or nil}, {}

  local function take(line, id, lock, row, is_granted)
    left = left - (known_sessions[row[SESSION]] == nil and 2 or 1)
    if lives(row) then
      local owner = given and id == given.id and given.owner or row[OWNER]
      line[#line + 1] = {
        id = id, lock = lock, row = row, granted = is_granted, owner = owner, at = 0, joins = false, watches = false,
      }
      if not owners[owner] then
        owners[owner] = true
        found[#found + 1] = owner
      end
    end
  end

  -- The line of a lock with its holders; nil if there are too many.
  local function line_of(lock)
    local line = by_lock[lock]
    if not line then
      local key = P .. 'lock:' .. lock
      left = left - 1
      if call('HLEN', key) > left then
        return nil
      end
      line = {upto = '-inf', order = -1}
      by_lock[lock], lines[#lines + 1] = line, line
      local fields = call('HGETALL', key)
      for at = 1, #fields, 2 do
        if fields[at] ~= '' then
          take(line, fields[at], lock, unpack_row(fields[at + 1]), true)
        end
      end
    end
    return line
  end

  -- Load the waiters before a claim; whether there are not too many.
  local function load_ahead(line, lock, order)
    local before = '(' .. text(order)
    local ids = call('ZRANGEBYSCORE', P .. 'line:' .. lock, line.upto, before, 'LIMIT', 0, math.max(left, 0) + 1)
    line.upto, line.order = '(' .. text(order), order
    if #ids > left then
      return false
    end
    local rows = #ids > 0 and call('HMGET', P .. 'wait:' .. lock, unpack(ids)) or ids
    for at, id in ipairs(ids) do
      if rows[at] then
        take(line, id, lock, unpack_row(rows[at]), false)
      end
    end
    return true
  end

  -- Load a waiting claim and what it waits for there; whether that is not too much.
  local function load(id, lock)
    local line = line_of(lock)
    local packed = line and call('HGET', P .. 'wait:' .. lock, id)
    if packed then
      local row = unpack_row(packed)
      if line.order < row[ORDER] then
        if not load_ahead(line, lock, row[ORDER]) then
          return false
        end
        take(line, id, lock, row, false)
      end
    end
    return line and left >= 0
  end

  if given then
    if not load(newcomer.id, newcomer.lock) then
      return nil
    end
  else
    local line = line_of(newcomer.lock)
    if not line or not load_ahead(line, newcomer.lock, newcomer.row[ORDER]) then
      return nil
    end
    line[#line + 1] = newcomer
  end
  local at = 1
  while found[at] do
    local session = session_of(found[at])
    if not sessions[session] then
      left = left - looks_for_waits(session)
      if left < 0 then
        return nil
      end
      sessions[session] = waits_of(session)
    end
    local waits = sessions[session][found[at]] or {}
    for first = 1, #waits, 2 do
      if not load(waits[first], waits[first + 1]) then
        return nil
      end
    end
    at = at + 1
  end
  return lines
end

-- Claims of one lock of which a later one waits for the earlier ones. Each claim is looked at once: `counted` members
-- were, and `alive` of these have not finished; the first `passed` watchers are served. `room` are too many.
local function new_lane(room)
  return {room = room, members = {}, watchers = {}, counted = 0, alive = 0, passed = 0}
end

-- Who waits for whom, among these claims on one lock in their order: a reader waits for the writers before it, and any
-- other claim for all before it.
local function make_lanes(claims)
  local limit = claims[1] and claims[1].row[LIMIT] or 0
  local all, writers = new_lane(math.max(limit, 1)), nil
  for _, claim in ipairs(claims) do
    if limit == 0 and claim.row[MODE] ~= 'x' and not claim.granted then
      writers = new_lane(1)
      break
    end
  end
  local joins_all, joins_both = {all}, {all, writers}
  for at, claim in ipairs(claims) do
    local is_reader = limit == 0 and claim.row[MODE] ~= 'x'
    claim.at, claim.joins, claim.watches = at, joins_all, is_reader and writers or all
    all.members[#all.members + 1] = claim
    if writers and not is_reader then
      claim.joins = joins_both
      writers.members[#writers.members + 1] = claim
    end
    if not claim.granted then
      local watchers = claim.watches.watchers
      watchers[#watchers + 1] = claim
    end
  end
  return all, writers
end

-- The owners that will have all that they wait for.
local function finishers(lines)
  local unserved, finished, claims_of, moved = {}, {}, {}, {}
  for _, line in ipairs(lines) do
    for _, claim in ipairs(line) do
      local owner = claim.owner
      local mine = claims_of[owner] or {}
      claims_of[owner], mine[#mine + 1] = mine, claim
      unserved[owner] = (unserved[owner] or 0) + (claim.granted and 0 or 1)
    end
    moved[#moved + 1], moved[#moved + 2] = make_lanes(line)
  end
  for owner, count in pairs(unserved) do
    finished[owner] = count == 0 or nil
  end
  while #moved > 0 do
    local lane = table.remove(moved)
    local members, watchers = lane.members, lane.watchers
    while lane.alive < lane.room and members[lane.counted + 1] do
      lane.counted = lane.counted + 1
      lane.alive = lane.alive + (finished[members[lane.counted].owner] and 0 or 1)
    end
    local upto = lane.alive >= lane.room and members[lane.counted].at or math.huge
    while watchers[lane.passed + 1] and watchers[lane.passed + 1].at <= upto do
      lane.passed = lane.passed + 1
      local owner = watchers[lane.passed].owner
      unserved[owner] = unserved[owner] - 1
      if unserved[owner] == 0 then
        finished[owner] = true
        for _, claim in ipairs(claims_of[owner]) do
          for _, joined in ipairs(claim.joins) do
            local last = joined.members[joined.counted]
            joined.alive = joined.alive - (last and claim.at <= last.at and 1 or 0)
            moved[#moved + 1] = joined
          end
        end
      end
    end
  end
  return finished
end

-- Each has what the one before it waits for.
local function describe(cycle)
  local links = {}
  for at, claim in ipairs(cycle) do
    local before = cycle[at == 1 and #cycle or at - 1]
    local session = living(claim.row[SESSION]) or {}
    links[at] = {
      claim.owner, session[3] or '', session[4] or '', session[5] or '0', claim.row[THREAD],
      string.match(before.lock, '^[^:]*:(.*)$'), string.match(claim.lock, '^[^:]*:(.*)$'),
    }
  end
  return links
end

-- Breadth first from what an owner waits for to something that it has itself; nil if there is no way. `waits` are the
-- waiters of each owner. The claims ahead in a lane are told once: a claim that comes later finds those behind them.
local function way_home(starts, home, waits)
  local came_from, seen, told, queue, at = {}, {}, {}, {}, 1
  for _, claim in ipairs(starts) do
    seen[claim.id], queue[#queue + 1] = true, claim
  end
  while queue[at] do
    local claim = queue[at]
    local lane, place = claim.watches, told[claim.watches] or 1
    while lane.members[place] and lane.members[place].at < claim.at do
      local other = lane.members[place]
      if other.owner == home then
        local back, path = {}, {}
        while claim do
          back[#back + 1], claim = claim, came_from[claim.id]
        end
        for last = #back, 1, -1 do
          path[#path + 1] = back[last]
        end
        return path
      end
      for _, further in ipairs(waits[other.owner] or {}) do
        if not seen[further.id] then
          seen[further.id], came_from[further.id], queue[#queue + 1] = true, claim, further
        end
      end
      place = place + 1
    end
    told[lane], at = place, at + 1
  end
end

local function came_first(one, other)
  if one.row[ORDER] == other.row[ORDER] then
    return one.id < other.id
  end
  return one.row[ORDER] < other.row[ORDER]
end

-- The shortest cycle through the newcomer's owner, as links; nil if its waiting will end. If that takes too many looks:
-- nil, and how many a search may take.
local function search(newcomer, given)
  local lines = gather(newcomer, given)
  if not lines then
    return nil, MOST_LOOKS
  end
  local finished, home = finishers(lines), newcomer.owner
  if finished[home] then
    return nil
  end
  local waits, starts, besides = {}, {}, {}
  for _, line in ipairs(lines) do
    local stuck = {}
    for _, claim in ipairs(line) do
      if not finished[claim.owner] then
        stuck[#stuck + 1] = claim
        if not claim.granted then
          local mine = waits[claim.owner] or {}
          waits[claim.owner], mine[#mine + 1] = mine, claim
        end
      end
    end
    if stuck[2] and stuck[2].granted then
      table.sort(stuck, came_first)
    end
    make_lanes(stuck)
  end
  for _, mine in pairs(waits) do
    if mine[2] then
      table.sort(mine, came_first)
    end
  end
  for _, claim in ipairs(waits[home] or {}) do
    table.insert(claim.id == newcomer.id and starts or besides, claim)
  end
  -- What the owner waits for besides comes second: it matters if a grant was given to one that waits already.
  return describe(way_home(starts, home, waits) or way_home(besides, home, waits) or {newcomer})
end
