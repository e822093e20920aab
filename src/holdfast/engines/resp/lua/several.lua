-- Take and give back many locks at once, each only if that can be done in as few steps as there can be. Whatever is not
-- that plain is left as it is, for `enter` and `release` to see to.
-- ARGV[1] session  ARGV[2] how many locks are to be taken
-- ARGV[3] for each, a line a word: x or s (mode), claim id, owner, lock, note, thread and for how many ms keys are kept,
-- to take it; r, claim id, lock and token (or nothing), to give it back. One argument, as each costs both sides more than
-- all its words.
-- Returns for each its token, 1 if it was given back, or nil if nothing was done. Nothing at all if none of them is plain.
local P, call, session = KEYS[1], redis.call, ARGV[1]
local stamp = call('TIME')
local now_us = stamp[1] * 1000000 + stamp[2]
local now = math.floor(now_us / 1000)
local session_key = P .. 'session:' .. session
local expires = call('HGET', session_key, 'expires')
-- The session lives, nothing of it was ever taken back, and nobody watches.
if not expires or tonumber(expires) <= now or call('EXISTS', P .. 'gone:' .. session, P .. 'watches') > 0 then
  return {}
end

local number = now_us
if ARGV[2] ~= '0' then
  -- As many numbers as may be needed, before any of them is given out.
  number = math.max((tonumber(call('GET', P .. 'last')) or 0) + 1, now_us)
  if number + tonumber(ARGV[2]) > 9007199254740991 then
    return {}
  end
  call('SET', P .. 'last', string.format('%.0f', number + tonumber(ARGV[2]) - 1))
end

local pack, lock_start, line_start = cmsgpack.pack, P .. 'lock:', P .. 'line:'
local answers, taken, given = {}, {}, {}
local word = string.gmatch(ARGV[3], '([^\n]*)\n')
local what = word()
while what do
  local id = word()
  local answer = false
  if what == 'r' then
    local lock, token = word(), tonumber(word())
    local mine = call('HMGET', lock_start .. lock, '', id)
    -- A lock that is marked so is this claim's alone, for as long as it likes.
    if mine[2] and mine[1] == 'x' and call('EXISTS', line_start .. lock) == 0
      and (not token or cmsgpack.unpack(mine[2])[6] == token) then
      call('DEL', lock_start .. lock)
      given[#given + 1] = 'c:' .. id
      answer = 1
    end
  else
    local owner, lock, note, thread, keep_for = word(), word(), word(), word(), word()
    local key = lock_start .. lock
    if call('EXISTS', key, line_start .. lock) == 0 then
      local row = {session, owner, what, number, now, number, -1, 0, 0, thread, note, '', 0}
      call('HSET', key, '', what, id, pack(row))
      call('PEXPIRE', key, keep_for)
      local many = #taken
      taken[many + 1], taken[many + 2] = 'c:' .. id, owner .. '\n' .. lock
      answer = string.format('%.0f', number)
      number = number + 1
    end
  end
  answers[#answers + 1] = answer
  what = word()
end
if taken[1] then
  call('HSET', session_key, unpack(taken))
end
if given[1] then
  call('HDEL', session_key, unpack(given))
end
return answers
