-- How a claim stands now.
-- ARGV[1] claim id  ARGV[2] session  ARGV[3] lock
-- Returns {'granted', …}, {'place', …}, {'gone', reason} or {'over'}, as enter does.
--@use namespace
--@use rows
--@use sessions
--@use events
--@use line
if not living(ARGV[2]) then
  return {'over'}
end
local row, is_granted = find(ARGV[3], ARGV[1])
if not row then
  return {'gone', call('HGET', P .. 'gone:' .. ARGV[2], ARGV[1]) or 'the engine does not know it'}
end
if not is_granted then
  pass_when_full()
  keep_place(ARGV[3], ARGV[1], row)
  -- Whatever was before it may have died meanwhile.
  pass_on(ARGV[3])
  row, is_granted = find(ARGV[3], ARGV[1])
end
return standing(ARGV[3], ARGV[1], row, is_granted)
