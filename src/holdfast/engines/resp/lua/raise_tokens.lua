-- Make every later token larger than a number. A counter that is past it already stays.
-- ARGV[1] the number
-- Returns {'done', 0, -1}.
--@use namespace
if (tonumber(call('GET', P .. 'last')) or 0) < tonumber(ARGV[1]) then
  call('SET', P .. 'last', ARGV[1])
end
return {'done', 0, -1}
