"""Opens for good when it has been counted down."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import InvalidRequest, NotAcquired
from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon


@pytest.mark.any_connection
@needs("cells")
async def test_a_latch_opens_when_it_has_been_counted_down(stage: Stage, locks: Front, rival: Front) -> None:
    waiting = stage.begin(stage.another(locks).latch("l", count=3).wait())
    assert await rival.latch("l", count=3).count_down() == 2
    assert await locks.latch("l", count=3).count_down() == 1
    assert not waiting.done()
    assert await rival.latch("l", count=3).count_down() == 0

    await soon(waiting)


@needs("cells")
async def test_a_latch_stays_open(locks: Front, rival: Front) -> None:
    assert await locks.latch("l", count=2).count_down(n=2) == 0

    await rival.latch("l", count=2).wait(wait=0)
    assert await rival.latch("l", count=2).count_down() == 0


@needs("cells")
async def test_a_wait_for_a_closed_latch_ends_with_its_time(locks: Front) -> None:
    with pytest.raises(NotAcquired):
        await locks.latch("l", count=1).wait(wait=0.05)


@needs("cells")
async def test_no_count_is_lost_among_many(stage: Stage, locks: Front, rival: Front) -> None:
    counts = await soon(
        asyncio.gather(*(stage.another((locks, rival)[n % 2]).latch("l", count=10).count_down() for n in range(10)))
    )
    assert sorted(counts) == list(range(10))


@needs("cells")
async def test_another_count_is_refused(locks: Front, rival: Front) -> None:
    await locks.latch("l", count=3).count_down()

    with pytest.raises(InvalidRequest) as refused:
        await rival.latch("l", count=2).count_down()
    assert refused.value.argument == "count"


@pytest.mark.by_turns
@needs("cells")
async def test_a_latch_is_forgotten_after_it_was_kept_for_a_while(locks: Front) -> None:
    latch = locks.latch("l", count=1, keep=0.3)
    await latch.count_down()
    await latch.wait(wait=0)

    async def forgotten() -> bool:
        """Another count is refused for as long as the latch is known."""
        try:
            await locks.latch("l", count=2, keep=0.3).wait(wait=0)
        except NotAcquired:
            return True
        except InvalidRequest:
            return False
        raise AssertionError("a latch of two is open that nobody has counted down")

    await eventually(forgotten)
