-- Who holds locks and who waits for them.
-- ARGV[1], … locks
-- Returns {lock, {who holds, …}, {who waits, …}} for each, each in order of arrival.
--@use namespace
--@use rows
--@use sessions

local function parties(part, lock)
  local fields, found = call('HGETALL', P .. part .. lock), {}
  for at = 1, #fields, 2 do
    if fields[at] ~= '' then
      local row = unpack_row(fields[at + 1])
      if lives(row) then
        found[#found + 1] = {fields[at], row}
      end
    end
  end
  table.sort(found, function(one, other)
    return one[2][ORDER] < other[2][ORDER]
  end)
  for at, claim in ipairs(found) do
    found[at] = party(lock, claim[1], claim[2])
  end
  return found
end

local infos = {}
for at, lock in ipairs(ARGV) do
  infos[at] = {lock, parties('lock:', lock), parties('wait:', lock)}
end
return infos
