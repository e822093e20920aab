-- The events of a watch after a number; those up to it are forgotten.
-- ARGV[1] session  ARGV[2] watch id  ARGV[3] number
-- Returns {'letters', the last number that was given, {number, type, kind, name, owner, claim, ms since the epoch, token, mode, detail}, …},
-- {'lost', the highest number that was given here} if the client has seen numbers that were never given here, or {'over'}.
--@use namespace
--@use rows
--@use sessions
local mail = P .. 'mail:' .. ARGV[1] .. ':' .. ARGV[2]
local key = P .. 'watch:' .. ARGV[1] .. ':' .. ARGV[2]
local its = call('HMGET', key, 'last', 'given')
-- A watch that is not listed collects nothing. Each of the keys can be evicted alone.
if not living(ARGV[1]) or not its[1] or not call('ZSCORE', P .. 'watches', ARGV[1] .. ' ' .. ARGV[2]) then
  call('DEL', key, mail)
  return {'over'}
end
local last, given, after = tonumber(its[1]), tonumber(its[2] or 0), tonumber(ARGV[3])
if after > given then
  return {'lost', given}
end
if last > given then
  pass_when_full()
  call('HSET', key, 'given', last)
end
local found, old = {'letters', last}, 0
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
