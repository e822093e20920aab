"""The wait-for graph in Lua is the one in Python."""

from __future__ import annotations

import redis as redis_py
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.waitgraph import Waiting, find_cycle
from holdfast.engines.resp.wire import compose
from holdfast.model import Claim, Mode
from tests.core.reference import serves

PARTS = ("namespace", "rows", "sessions", "events", "line", "deadlock")
LOAD_AND_SEARCH = (
    "\n".join(map(compose, PARTS))
    + """
-- ARGV: claim id, owner, lock, mode, order, permits and 1 if granted, for each claim; the last is the newcomer.
call('FLUSHDB')
call('HSET', P .. 'session:s', 'expires', text(now + 60000), 'ttl', '60000', 'app', 'a', 'host', 'h', 'pid', '1')
local newcomer
for at = 1, #ARGV, 7 do
  local id, owner, lock, is_granted = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 6] == '1'
  local order, limit = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local row = {'s', owner, ARGV[at + 3], order, now, is_granted and order or 0, -1, 0, limit, 't', '', '', 0}
  newcomer = {id = id, lock = lock, row = row, granted = false, owner = owner}
  if is_granted then
    put_granted(lock, id, row, 60000)
  elseif at + 7 <= #ARGV then
    call('HSET', P .. 'wait:' .. lock, id, pack(row))
    call('ZADD', P .. 'line:' .. lock, text(order), id)
    call('HSET', P .. 'waits:s', id, owner .. '\\n' .. lock)
  end
end
return search(newcomer) or {}
"""
)

Wish = tuple[str, str, Mode]
wishes = st.lists(
    st.tuples(
        st.sampled_from("vwxyz"), st.sampled_from(("a", "b", "c", "p")), st.sampled_from(("exclusive", "shared"))
    ),
    min_size=2,
    max_size=14,
)


def line(wished: list[Wish], limit: int) -> list[Waiting]:
    """Claims in the order of their arrival, as long as nobody has to wait for ever; `p` is a semaphore."""
    found: list[Waiting] = []
    for place, (owner, name, mode) in enumerate(wished, 1):
        claim = Claim(f"s-{place:02}", "s", f"s/{owner}", "lock", name, mode)
        if name == "p":
            claim = Claim(claim.id, "s", claim.owner, "semaphore", name, limit=limit)
        waiting = Waiting(claim, place, serves(claim, [other.claim for other in found]))
        found.append(waiting)
        if not waiting.granted and find_cycle(found, claim.id):
            break
    return found


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wishes, st.integers(1, 3))
def test_a_deadlock_is_found_in_redis_exactly_where_the_table_finds_it(
    redis: redis_py.Redis, wished: list[Wish], limit: int
) -> None:
    claims = line(wished, limit)
    words: list[str | int] = []
    for claim, order, granted in claims:
        mode = "x" if claim.mode == "exclusive" else "s"
        words += [claim.id, claim.owner, f"{claim.kind}:{claim.name}", mode, order, claim.limit, int(granted)]

    links = redis.eval(LOAD_AND_SEARCH, 1, "test:", *words)

    last = claims[-1]
    cycle = [] if last.granted else find_cycle(claims, last.claim.id)
    assert [(link[0], link[5], link[6]) for link in links] == [
        (waits.owner.encode(), has.name.encode(), waits.name.encode()) for waits, has in cycle
    ]
