-- Let whoever shows the ticket's secret adopt this grant. The sender holds on until then.
-- ARGV[1] claim id  ARGV[2] lock  ARGV[3] ticket
-- Returns {'done', 0, -1} or {'gone', reason}.
--@use namespace
--@use rows
--@use sessions
local packed = call('HGET', P .. 'lock:' .. ARGV[2], ARGV[1])
local row = packed and unpack_row(packed)
if not row or not lives(row) then
  return {'gone', 'it is no longer held'}
end
local broken = call('HGET', P .. 'gone:' .. row[SESSION], ARGV[1])
if broken then
  return {'gone', broken}
end
row[TICKET] = ARGV[3]
call('HSET', P .. 'lock:' .. ARGV[2], ARGV[1], pack(row))
return {'done', 0, -1}
