-- Remove what has died and pass on what it held.
-- ARGV[1] how many claims at most
-- Returns {'done', 1 if there is more to do, ms to the next death or -1}.
--@use namespace
--@use rows
--@use sessions
--@use events
--@use line
--@use death
pass_when_full()
local more, next_death = sweep(tonumber(ARGV[1]))
return {'done', more, next_death}
