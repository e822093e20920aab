-- Refuse a stale token, else remember it. What follows in the same script writes.
-- KEYS[1] the resource's fence
-- ARGV[1] token   ARGV[2] "exclusive", "shared", or "once" and something unique
-- Returns the error "HOLDFAST_STALE <highest>" when it refuses, "HOLDFAST_DONE" to a repetition of what was done.
-- Tokens stay the strings that they came as: a number of 16 digits would lose some on its way back.
local presented = tonumber(ARGV[1])
local seen = redis.call('GET', KEYS[1])
local once = string.sub(ARGV[2], 1, 4) == 'once'
local told = once and ARGV[1] .. ' ' .. ARGV[2] or ARGV[1]
-- A token under which a command failed that was to be done once: it has been seen, and may be presented again.
local unused = ARGV[1] .. ' unused'
local digits = seen and string.match(seen, '^%d+')
local highest = digits and tonumber(digits) or 0
if once and seen == told then
    return redis.error_reply('HOLDFAST_DONE')
end
if highest > presented or (highest == presented and once and seen ~= unused) then
    return redis.error_reply('HOLDFAST_STALE ' .. digits)
end
if (highest < presented or seen == unused) and ARGV[2] ~= 'shared' then
    redis.call('SET', KEYS[1], told)
end
