-- Refuse a stale token, else remember it. What follows in the same script writes.
-- KEYS[1] the resource's fence
-- ARGV[1] token   ARGV[2] "exclusive", "once" or "shared"
-- Returns the error "HOLDFAST_STALE <highest>" when it refuses.
-- Tokens stay the strings that they came as: a number of 16 digits would lose some on its way back.
local presented = tonumber(ARGV[1])
local seen = redis.call('GET', KEYS[1])
local highest = seen and tonumber(seen) or 0
if highest > presented or (highest == presented and ARGV[2] == 'once') then
    return redis.error_reply('HOLDFAST_STALE ' .. seen)
end
if highest < presented and ARGV[2] ~= 'shared' then
    redis.call('SET', KEYS[1], ARGV[1])
end
