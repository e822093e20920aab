-- An operator's release on this node: the holder learns of it with its next heartbeat, and nothing extends it any more.
-- ARGV[1] lock  ARGV[2] 1 to force  ARGV[3] ms for which the reason is remembered at least
-- Returns the claim id that was told, or nil.
local P, call = KEYS[1], redis.call
local key = P .. 'lock:' .. ARGV[1]
local id = call('HGET', key, 'claim')
-- So that a full node lets what follows pass: see `pass_when_full`.
call('DEL', P .. 'room')
if id then
  -- Until its holder has heard of it, however long its ttl is.
  local ms = math.max(tonumber(ARGV[3]), call('PTTL', key) + 10000)
  call('SET', P .. 'gone:' .. id, 'an operator broke it', 'PX', ms)
  if ARGV[2] == '1' then
    call('DEL', key)
  end
end
return id
