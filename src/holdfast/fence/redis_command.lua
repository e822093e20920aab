-- Run one command, after redis_check.lua.
-- KEYS[2..] the command's keys, which come first in it
-- ARGV[3] the command, or nothing   ARGV[4..] what follows its keys
-- Returns the command's own reply.
if not ARGV[3] then
    return true
end
if #KEYS == 2 and not once then
    return redis.call(ARGV[3], KEYS[2], unpack(ARGV, 4))
end
local words = {ARGV[3], unpack(KEYS, 2)}
for at = 4, #ARGV do
    words[#words + 1] = ARGV[at]
end
if not once then
    return redis.call(unpack(words))
end
local reply = redis.pcall(unpack(words))
if type(reply) == 'table' and reply.err then
    -- A command that fails changes nothing.
    redis.call('SET', KEYS[1], unused)
end
return reply
