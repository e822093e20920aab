-- Every script begins with this: the clock, the keys, the counter.
-- KEYS[1] the start of all keys of the namespace, with its hash tag: all of them lie in one slot.
local P = KEYS[1]
local call = redis.call
local stamp = call('TIME')
local now_us = stamp[1] * 1000000 + stamp[2]
local now = math.floor(now_us / 1000)

-- Lua's own conversion loses digits beyond the fourteenth.
local function text(number)
  return string.format('%.0f', number)
end

-- How long a key may outlive its last sign of life, in ms. Liveness is the session's expiry; this only clears away.
local function keep_for(ttl)
  return 2 * ttl + 60000
end

-- Let a key live for this many ms, give or take 20 s, which saves a write nearly always. Never shortens: somebody with a
-- longer ttl may need it.
local function touch(key, ms)
  if call('PTTL', key) < ms - 20000 then
    call('PEXPIRE', key, text(ms))
  end
end

-- The next number: larger than the last, and not behind the clock, so that it grows even if the counter was lost.
local function next_number()
  local number = math.max((tonumber(call('GET', P .. 'last')) or 0) + 1, now_us)
  call('SET', P .. 'last', text(number))
  return number
end
