-- Give claims back, granted or not. Safe to repeat.
-- ARGV[1] ms for which a withdrawn claim id is remembered
-- ARGV[2], ARGV[3], ARGV[4], … claim id, lock, and 1 if its enter may still be on the way
-- Returns for each {1 if it was held, reason why it was taken away or nil}.
local P, call = KEYS[1], redis.call
local answers = {}
-- So that a full node lets what follows pass: see `pass_when_full`.
call('DEL', P .. 'room')
for at = 2, #ARGV, 3 do
  local id, key, held = ARGV[at], P .. 'lock:' .. ARGV[at + 1], 0
  local reason = call('GET', P .. 'gone:' .. id)
  if call('HGET', key, 'claim') == id then
    call('DEL', key)
    held = 1
  end
  if ARGV[at + 2] == '1' then
    call('SET', P .. 'gone:' .. id, 'it was withdrawn', 'PX', ARGV[1])
  end
  answers[#answers + 1] = {held, reason}
end
return answers
