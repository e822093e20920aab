-- The sessions that live.
-- Returns their ids.
--@use namespace
return call('ZRANGEBYSCORE', P .. 'sessions', '(' .. text(now), '+inf')
