-- Keep claims for another ttl, each only where it is still held. Never re-creates.
-- ARGV[1] ttl in ms  ARGV[2], ARGV[3], … claim id and lock
-- Returns for each 1, 0 if this node does not have it, or the reason why it was taken away.
--@use namespace
local answers = {}
for at = 2, #ARGV, 2 do
  local id, key = ARGV[at], P .. 'lock:' .. ARGV[at + 1]
  local found = call('HMGET', key, 'claim', 'dies')
  local answer = call('GET', P .. 'gone:' .. id) or 0
  if answer == 0 and found[1] == id then
    local dies = tonumber(found[2])
    if dies == 0 then
      call('PEXPIRE', key, ARGV[1])
      answer = 1
    elseif dies > now then
      call('PEXPIRE', key, text(math.min(tonumber(ARGV[1]), dies - now)))
      answer = 1
    else
      answer = 'it was held longer than max_hold'
    end
  end
  answers[#answers + 1] = answer
end
return answers
