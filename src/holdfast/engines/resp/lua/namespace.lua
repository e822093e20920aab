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

-- The longest time, in ms: 300 years. A longer one, whatever it was asked for, would be an error in the middle of a step.
local LONGEST = 1e13

-- How long a key may outlive its last sign of life, in ms. Liveness is the session's expiry; this only clears away.
local function keep_for(ttl)
  return 2 * ttl + 60000
end

-- Let a key live for this many ms, give or take 20 s, which saves a write nearly always. Never shortens: somebody with a
-- longer ttl may need it.
local function touch(key, ms)
  ms = math.min(ms, LONGEST)
  if call('PTTL', key) < ms - 20000 then
    call('PEXPIRE', key, text(ms))
  end
end

-- A full Redis without eviction refuses a write that may need room, unless another write came before it in the script.
-- A step that keeps or gives back what there is needs next to none: it begins with a write that needs none at all.
local function pass_when_full()
  call('DEL', P .. 'room')
end

-- What a step answers that would need a number, where none is left. It is asked for before anything is changed.
local SPENT = redis.error_reply('SPENT every token under 2^53 has been given out')

local function is_spent()
  return (tonumber(call('GET', P .. 'last')) or 0) >= 9007199254740991
end

-- The next number: larger than the last, and not behind the clock, so that it grows even if the counter was lost.
local function next_number()
  local number = math.max((tonumber(call('GET', P .. 'last')) or 0) + 1, now_us)
  call('SET', P .. 'last', text(number))
  return number
end
