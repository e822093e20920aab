-- Events, written only when somebody watches. `watches` names each watch as `<session> <id>`.
local MOST_LETTERS = 10000
local watched

local function somebody_watches()
  if watched == nil then
    watched = call('EXISTS', P .. 'watches') == 1
  end
  return watched
end

-- Whether a watch of `prefix` shows `name`: `db/` is what lies under db, `db` that and db itself.
local function shows(prefix, name)
  if prefix == '' or name == prefix then
    return prefix == '' or string.sub(prefix, -1) ~= '/'
  end
  if string.sub(prefix, -1) ~= '/' then
    prefix = prefix .. '/'
  end
  return string.sub(name, 1, #prefix) == prefix
end

local function post(kind, name, event)
  for _, member in ipairs(call('ZRANGE', P .. 'watches', 0, -1)) do
    local session, id = string.match(member, '^(%S+) (%S+)$')
    local alive = living(session)
    local key = P .. 'watch:' .. session .. ':' .. id
    local wanted = alive and call('HMGET', key, 'kind', 'prefix')
    if wanted and wanted[1] then
      local cell = string.sub(kind, 1, 5) == 'cell:'
      local hears = (wanted[1] == kind or (wanted[1] == '' and not cell))
        and (cell and wanted[2] == name or not cell and shows(wanted[2], name))
      local mail = P .. 'mail:' .. session .. ':' .. id
      -- One that finds no room leaves a gap in the numbers, by which whoever fetches knows.
      event[1] = hears and call('HINCRBY', key, 'last', 1)
      if hears and call('LLEN', mail) <= MOST_LETTERS then
        call('RPUSH', mail, pack(event))
        touch(mail, keep_for(alive[2]))
        notify(session, 'letter', id)
      end
    end
  end
end

local function tell(what, lock, id, row, detail)
  if somebody_watches() then
    local kind, name = string.match(lock, '^([^:]*):(.*)$')
    local token = row[TOKEN] > 0 and text(row[TOKEN]) or ''
    post(kind, name, {0, what, kind, name, row[OWNER], id, text(now), token, row[MODE], detail or ''})
  end
end
