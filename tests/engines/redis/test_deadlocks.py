"""The wait-for graph in Lua is the one in Python."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import redis as redis_py
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import EngineUnavailable
from holdfast.core.waitgraph import Waiting, find_cycle
from holdfast.engines.resp.wire import compose
from holdfast.model import Claim, Mode
from tests.core.reference import serves

PARTS = ("namespace", "rows", "sessions", "events", "line", "deadlock")
LOAD = (
    "\n".join(map(compose, PARTS))
    + """
-- ARGV: claim id, owner, lock, mode, order, permits and 1 if granted, for each claim.
local person = {'app', 'a', 'host', 'h', 'pid', '1', 'secret', 'x'}
call('HSET', P .. 'session:s', 'expires', text(now + 60000), 'ttl', '60000', unpack(person))
local last
for at = 1, #ARGV, 7 do
  local id, owner, lock, is_granted = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 6] == '1'
  local order, limit = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local row = {'s', owner, ARGV[at + 3], order, now, is_granted and order or 0, -1, 0, limit, 't', '', '', 0}
  last = not is_granted and {id = id, lock = lock, row = row, granted = false, owner = owner}
  if is_granted then
    put_granted(lock, id, row, 60000)
  elseif at + 7 <= #ARGV or not ASKS then
    call('HSET', P .. 'wait:' .. lock, id, pack(row))
    call('ZADD', P .. 'line:' .. lock, text(order), id)
    call('HSET', P .. 'waits:s', id, owner .. '\\n' .. lock)
  end
end
"""
)
SEARCH = f"""
local ASKS = true -- the last claim is a newcomer, for which a search is made if it has to wait
redis.call('FLUSHDB')
{LOAD}
return last and search(last) or {{}}
"""

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


def words(claims: Iterable[Waiting]) -> list[str | int]:
    """Claims as the scripts above take them."""
    found: list[str | int] = []
    for claim, order, granted in claims:
        mode = "x" if claim.mode == "exclusive" else "s"
        found += [claim.id, claim.owner, f"{claim.kind}:{claim.name}", mode, order, claim.limit, int(granted)]
    return found


def chain(links: int, last: str) -> list[Waiting]:
    """Each owner holds a lock and waits for that of the next one; the last of them waits for `last`."""
    names = [f"l{number}" for number in range(links)] + [last]
    owners = [f"s/{number}" for number in range(links)]
    held = [Claim(f"s-h{at}", "s", owner, "lock", names[at]) for at, owner in enumerate(owners)]
    waiting = [Claim(f"s-w{at}", "s", owner, "lock", names[at + 1]) for at, owner in enumerate(owners)]
    return [
        *(Waiting(claim, order, True) for order, claim in enumerate(held, 1)),
        *(Waiting(claim, order, False) for order, claim in enumerate(waiting, links + 1)),
    ]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wishes, st.integers(1, 3))
def test_a_deadlock_is_found_in_redis_exactly_where_the_table_finds_it(
    redis: redis_py.Redis, wished: list[Wish], limit: int
) -> None:
    claims = line(wished, limit)

    links = redis.eval(SEARCH, 1, "test:", *words(claims))

    last = claims[-1]
    cycle = [] if last.granted else find_cycle(claims, last.claim.id)
    assert [(link[0], link[5], link[6]) for link in links] == [
        (waits.owner.encode(), has.name.encode(), waits.name.encode()) for waits, has in cycle
    ]


def test_a_long_chain_without_a_deadlock_is_searched_in_one_go(redis: redis_py.Redis) -> None:
    newcomer = Waiting(Claim("s-n", "s", "s/n", "lock", "l0"), 10_000, False)
    claims = [*chain(1_200, "free"), newcomer]
    before = cpu(redis)

    assert redis.eval(SEARCH, 1, "test:", *words(claims)) == []

    # About 0.05 s. With a look at all claims for each owner that can finish, it took 3 s.
    assert cpu(redis) - before < 0.5


def test_a_claim_whose_search_would_take_too_long_is_refused_and_changes_nothing(
    redis: redis_py.Redis, url: str
) -> None:
    with holdfast.connect(url, ttl=60.0) as locks:
        grant = locks.lock("mine").acquire()
        redis.eval("local ASKS = false\n" + LOAD, 1, "holdfast:1:{holdfast}:", *words(chain(3_000, "mine")))
        before = contents(redis)
        took = []

        for _ in range(3):
            spent = cpu(redis)
            with pytest.raises(EngineUnavailable, match="search for a deadlock looks at") as caught:
                locks.lock("l0").acquire(wait=30.0)
            took.append(cpu(redis) - spent)
            assert caught.value.outcome == "not done"
        assert locks.lock("l0").try_acquire() is None

        assert contents(redis) == before
        # About 0.02 s. Without a bound it took more than 5 s.
        assert min(took) < 0.2
        grant.renew()
        locks.lock("free").acquire().release()


def cpu(redis: redis_py.Redis) -> float:
    """The CPU time that the server has spent, in seconds."""
    found = redis.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def contents(redis: redis_py.Redis) -> dict[bytes, bytes | None]:
    """Every key and its value. What a heartbeat writes, and counts, is left out."""
    return {key: redis.dump(key) for key in redis.scan_iter() if b":session" not in key and not key.endswith(b":last")}
