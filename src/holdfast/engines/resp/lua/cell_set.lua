-- Write a cell, or delete it, if its version is still the expected one. A new version is larger than any before it.
-- ARGV[1] cell, as kind:name  ARGV[2] 1 to write, 0 to delete  ARGV[3] value  ARGV[4] expected version, empty for any
-- ARGV[5] ms to keep it, 0 for ever
-- Returns {'set', version} or {'mismatch', current version}.
--@use namespace
--@use rows
--@use sessions
--@use events
local key = P .. 'cell:' .. ARGV[1]
local current = call('HGET', key, 'version')
if ARGV[4] ~= '' and ARGV[4] ~= (current or '0') then
  return {'mismatch', current or '0'}
end
local version = '0'
if ARGV[2] == '0' then
  if not current then
    return {'set', '0'}
  end
  call('DEL', key)
else
  if is_spent() then
    return SPENT
  end
  version = text(next_number())
  call('HSET', key, 'value', ARGV[3], 'version', version)
  if ARGV[5] == '0' then
    call('PERSIST', key)
  else
    call('PEXPIRE', key, text(math.min(tonumber(ARGV[5]), LONGEST)))
  end
end
if somebody_watches() then
  local kind, name = string.match(ARGV[1], '^([^:]*):(.*)$')
  post('cell:' .. kind, name, {0, 'changed', 'cell:' .. kind, name, '', '', text(now), '', 'x', ''})
end
return {'set', version}
