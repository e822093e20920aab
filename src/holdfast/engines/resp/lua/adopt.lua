-- Take over the grant of another claim: the same place and slot, a higher token.
-- ARGV[1] claim id  ARGV[2] session  ARGV[3] owner  ARGV[4] lock  ARGV[5] mode  ARGV[6] permits
-- ARGV[7] source claim id  ARGV[8] ticket  ARGV[9] note  ARGV[10] thread
-- Returns {'granted', …}, {'gone', reason}, {'over'}, {'deadlock', links} or {'entangled',
-- how many looks a search may take}, as enter does.
--@use namespace
--@use rows
--@use sessions
--@use events
--@use line
--@use deadlock
local id, session_id, owner, lock, source = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[7]
local session = living(session_id)
if not session then
  return {'over'}
end
local mine, is_granted = find(lock, id)
if mine then
  return standing(lock, id, mine, is_granted)
end
local reason = call('HGET', P .. 'gone:' .. session_id, id)
if reason then
  return {'gone', reason}
end
local packed = call('HGET', P .. 'lock:' .. lock, source)
local old = packed and unpack_row(packed)
if not old or not lives(old) or ARGV[8] == '' or old[TICKET] ~= ARGV[8]
  or old[MODE] ~= ARGV[5] or old[LIMIT] ~= tonumber(ARGV[6]) then
  return {'gone', 'there is nothing to adopt: it was adopted, released or lost before'}
end
-- One that was told to go cannot be adopted: it would outlive the break.
local broken = call('HGET', P .. 'gone:' .. old[SESSION], source)
if broken then
  return {'gone', broken}
end
if looks_for_waits(session_of(owner)) > MOST_LOOKS then
  return {'entangled', MOST_LOOKS}
end
local waits = waits_of(session_of(owner))[owner] or {}
for at = 1, #waits, 2 do
  local row, is_granted = find(waits[at + 1], waits[at])
  if row and not is_granted and lives(row) then
    local newcomer = {id = waits[at], lock = waits[at + 1], row = row, granted = false, owner = owner}
    local cycle, too_many = search(newcomer, {id = source, owner = owner})
    if too_many then
      return {'entangled', too_many}
    end
    if cycle then
      return {'deadlock', cycle}
    end
    -- One search tells of all that its owner waits for: it goes on with all of that, or with nothing.
    break
  end
end
if is_spent() then
  return SPENT
end
bury_name(old[SESSION], source, 'it was handed over')
notify(old[SESSION], 'gone', source)
drop_granted(lock, source, old)
local row = {
  session_id, owner, old[MODE], old[ORDER], now, next_number(), old[SLOT], old[DIES], old[LIMIT], ARGV[10], ARGV[9], '',
  old[MAX_HOLD],
}
put_granted(lock, id, row, session[2])
call('HSET', P .. 'session:' .. session_id, 'c:' .. id, owner .. '\n' .. lock)
tell('granted', lock, id, row, 'it was handed over')
return granted(row)
