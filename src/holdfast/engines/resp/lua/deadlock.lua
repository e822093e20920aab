-- Who can never go on. Every claim is released once its owner has all that it waits for; so the owners that will
-- finish are the smallest set such that each waiting claim of theirs is served: a lock by earlier claims that belong to
-- finishers, a permit by fewer than `limit` earlier ones that do not. Whoever is left waits for ever.

-- The claims of one lock, added to `claims`, and to `found` as well.
local function load_line(lock, claims, found)
  for _, part in ipairs({'lock:', 'wait:'}) do
    local fields = call('HGETALL', P .. part .. lock)
    for at = 1, #fields, 2 do
      local id = fields[at]
      if id ~= '' and not claims[id] then
        local row = unpack_row(fields[at + 1])
        if lives(row) then
          claims[id] = {id = id, lock = lock, row = row, granted = part == 'lock:', owner = row[OWNER]}
          found[#found + 1] = claims[id]
        end
      end
    end
  end
end

-- An owner's name begins with its session's id.
local function session_of(owner)
  return string.match(owner, '^([^/]*)/') or ''
end

-- The claims in line of each owner of one session, as {id, lock}.
local function waits_of(session)
  local waits = {}
  local fields = living(session) and call('HGETALL', P .. 'waits:' .. session) or {}
  for at = 1, #fields, 2 do
    local owner, lock = string.match(fields[at + 1], '^([^\n]*)\n(.*)$')
    waits[owner] = waits[owner] or {}
    table.insert(waits[owner], {fields[at], lock})
  end
  return waits
end

-- Everything that the newcomer could wait for, however far away. `given` supposes a grant to be another owner's already.
-- Each lock, owner and session is read once: a ring of many owners costs no more than its links.
local function gather(newcomer, given)
  local claims, lines, owners, sessions = {[newcomer.id] = newcomer}, {[newcomer.lock] = true}, {}, {}
  local frontier, found = {newcomer.lock}, {newcomer}
  while #frontier > 0 do
    for _, lock in ipairs(frontier) do
      load_line(lock, claims, found)
    end
    frontier = {}
    for _, claim in ipairs(found) do
      if given and claim.id == given.id then
        claim.owner = given.owner
      end
      if not owners[claim.owner] then
        owners[claim.owner] = true
        local session = session_of(claim.owner)
        sessions[session] = sessions[session] or waits_of(session)
        for _, waiting in ipairs(sessions[session][claim.owner] or {}) do
          if not lines[waiting[2]] then
            lines[waiting[2]] = true
            frontier[#frontier + 1] = waiting[2]
          end
        end
      end
    end
    found = {}
  end
  local ordered = {}
  for _, claim in pairs(claims) do
    ordered[#ordered + 1] = claim
  end
  table.sort(ordered, function(one, other)
    if one.row[ORDER] == other.row[ORDER] then
      return one.id < other.id
    end
    return one.row[ORDER] < other.row[ORDER]
  end)
  return ordered
end

local function serves(ahead, writers, claim)
  if claim.row[LIMIT] > 0 then
    return (ahead[claim.lock] or 0) < claim.row[LIMIT]
  end
  local in_the_way = claim.row[MODE] == 'x' and ahead or writers
  return (in_the_way[claim.lock] or 0) == 0
end

local function finishers(ordered)
  local unserved, finished, served = {}, {}, {}
  for _, claim in ipairs(ordered) do
    unserved[claim.owner] = (unserved[claim.owner] or 0) + (claim.granted and 0 or 1)
  end
  for owner, count in pairs(unserved) do
    finished[owner] = count == 0 or nil
  end
  local progress = true
  while progress do
    progress = false
    local ahead, writers = {}, {}
    for _, claim in ipairs(ordered) do
      local owner = claim.owner
      if not finished[owner] then
        if not claim.granted and not served[claim.id] and serves(ahead, writers, claim) then
          served[claim.id], progress = true, true
          unserved[owner] = unserved[owner] - 1
          finished[owner] = unserved[owner] == 0 or nil
        end
        if not finished[owner] then
          ahead[claim.lock] = (ahead[claim.lock] or 0) + 1
          if claim.row[MODE] == 'x' then
            writers[claim.lock] = (writers[claim.lock] or 0) + 1
          end
        end
      end
    end
  end
  return finished
end

-- Two claims on the same lock.
local function blocks(other, claim)
  return other.row[ORDER] < claim.row[ORDER]
    and (claim.row[LIMIT] > 0 or claim.row[MODE] == 'x' or other.row[MODE] == 'x')
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

-- The shortest cycle through the newcomer's owner, as links; nil if its waiting will end.
local function search(newcomer, given)
  local ordered = gather(newcomer, given)
  local finished = finishers(ordered)
  if finished[newcomer.owner] then
    return nil
  end
  local stuck, waits = {}, {}
  for _, claim in ipairs(ordered) do
    if not finished[claim.owner] then
      stuck[claim.lock] = stuck[claim.lock] or {}
      table.insert(stuck[claim.lock], claim)
      if not claim.granted then
        waits[claim.owner] = waits[claim.owner] or {}
        table.insert(waits[claim.owner], claim)
      end
    end
  end
  local came_from, seen, line, at = {}, {[newcomer.id] = true}, {newcomer}, 1
  while line[at] do
    local claim = line[at]
    for _, other in ipairs(stuck[claim.lock] or {}) do
      if blocks(other, claim) then
        if other.owner == newcomer.owner then
          local path = {claim}
          while came_from[path[1].id] do
            table.insert(path, 1, came_from[path[1].id])
          end
          return describe(path)
        end
        for _, further in ipairs(waits[other.owner] or {}) do
          if not seen[further.id] then
            seen[further.id] = true
            came_from[further.id] = claim
            line[#line + 1] = further
          end
        end
      end
    end
    at = at + 1
  end
  return describe({newcomer})
end
