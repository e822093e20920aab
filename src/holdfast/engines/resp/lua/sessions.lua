-- Sessions: `session:<id>` has expires and ttl in ms, who it is, the secret that its notices are signed with, and
-- `c:<claim id>` for each of its claims.
local known_sessions = {}
-- Whether a session was found that expires later than its ttl from now: the server's clock was set back.
local clock_set_back = false
-- expires, ttl, app, host, pid, secret
local SESSION_FIELDS = 6

-- A session as {expires, ttl, app, host, pid, secret}; nil if there is none or it has run out.
local function living(id)
  local found = known_sessions[id]
  if found == nil then
    found = call('HMGET', P .. 'session:' .. id, 'expires', 'ttl', 'app', 'host', 'pid', 'secret')
    local expires, ttl = tonumber(found[1]), tonumber(found[2])
    if expires and expires > now then
      if expires > now + ttl then
        -- It would live on for as long as the clock needs to catch up, dead or not.
        clock_set_back, expires = true, now + ttl
        call('HSET', P .. 'session:' .. id, 'expires', text(expires))
        call('ZADD', P .. 'sessions', text(expires), id)
      end
      found[1], found[2] = expires, ttl
    else
      found = false
    end
    known_sessions[id] = found
  end
  return found or nil
end

local function lives(row)
  return living(row[SESSION]) and (row[DIES] == 0 or row[DIES] > now)
end

-- A word to one living session, over its own channel. Any user of the server may publish there, so it is signed.
local function notify(session, what, subject)
  local notice, secret = what .. ' ' .. subject, living(session)[6]
  call('PUBLISH', P .. 'notices:' .. session, notice .. ' ' .. redis.sha1hex(secret .. notice .. secret))
end

-- Remember why a claim is gone, for as long as its session lives.
local function bury_name(session, id, reason)
  local alive = living(session)
  if alive then
    call('HSET', P .. 'gone:' .. session, id, reason)
    touch(P .. 'gone:' .. session, keep_for(alive[2]))
  end
end

-- A claim as people see it.
local function party(lock, id, row)
  local session = living(row[SESSION]) or {}
  return {
    id, row[OWNER], session[3] or '', session[4] or '', session[5] or '0', row[THREAD], row[NOTE],
    row[SINCE], now - row[SINCE], row[MODE], row[TOKEN] > 0 and row[TOKEN] or '', row[SLOT],
    string.match(lock, '^[^:]*:(.*)$'), row[LIMIT],
  }
end
