-- An operator's release: tell every holder to go. One that has not gone within its ttl is removed; at once if forced.
-- ARGV[1] lock  ARGV[2] 1 to force
-- Returns the claim ids that were told.
--@use namespace
--@use rows
--@use sessions
--@use events
--@use line
pass_when_full()
local lock, told = ARGV[1], {}
for _, holder in ipairs(holders(lock)) do
  local id, row = holder[1], holder[2]
  local session = living(row[SESSION])
  told[#told + 1] = id
  bury_name(row[SESSION], id, 'an operator broke it')
  tell('broken', lock, id, row)
  if ARGV[2] == '1' then
    drop_granted(lock, id, row)
  else
    local dies = now + session[2]
    row[DIES] = row[DIES] > 0 and math.min(row[DIES], dies) or dies
    put_granted(lock, id, row, session[2])
  end
  notify(row[SESSION], 'gone', id)
end
pass_on(lock)
return told
