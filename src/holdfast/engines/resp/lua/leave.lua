-- Withdraw a claim, whatever became of it. Safe to repeat.
-- ARGV[1] claim id  ARGV[2] session  ARGV[3] lock  ARGV[4] 1 if its enter may still be on the way
-- Returns {'done', 0, -1}.
--@use namespace
--@use rows
--@use sessions
--@use events
--@use line
pass_when_full()
local row, is_granted = find(ARGV[3], ARGV[1])
if row then
  depart(ARGV[3], ARGV[1], row, is_granted, 'released')
end
if ARGV[4] == '1' then
  -- Its enter may still arrive. It has to find this.
  bury_name(ARGV[2], ARGV[1], 'it was withdrawn')
else
  local reason = call('HGET', P .. 'gone:' .. ARGV[2], ARGV[1])
  if reason and reason ~= 'it was withdrawn' then
    call('HDEL', P .. 'gone:' .. ARGV[2], ARGV[1])
  end
end
return {'done', 0, -1}
