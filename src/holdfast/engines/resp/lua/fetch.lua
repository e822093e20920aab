-- The events of a watch after a number; those up to it are forgotten.
-- ARGV[1] session  ARGV[2] watch id  ARGV[3] number
-- Returns {'letters', the last number that was given, {number, type, kind, name, owner, claim, ms since the epoch, token, mode, detail}, …} or {'over'}.
--@use namespace
--@use rows
--@use sessions
local mail = P .. 'mail:' .. ARGV[1] .. ':' .. ARGV[2]
local last = call('HGET', P .. 'watch:' .. ARGV[1] .. ':' .. ARGV[2], 'last')
if not living(ARGV[1]) or not last then
  return {'over'}
end
local after, found, old = tonumber(ARGV[3]), {'letters', tonumber(last)}, 0
for _, packed in ipairs(call('LRANGE', mail, 0, -1)) do
  local letter = unpack_row(packed)
  if letter[1] > after then
    found[#found + 1] = letter
  else
    old = old + 1
  end
end
if old > 0 then
  call('LTRIM', mail, old, -1)
end
return found
