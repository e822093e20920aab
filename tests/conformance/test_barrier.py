"""Where parties wait for each other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import InvalidRequest, NotAcquired
from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon


async def arrived(stage: Stage, client: Front, count: int) -> None:
    """Wait until so many parties stand at the barrier."""
    looker = stage.another(client)

    async def there() -> bool:
        return len((await looker.inspect("b", kind="barrier")).holders) == count

    await eventually(there)


@pytest.mark.any_connection
@needs("shared", "cells")
async def test_nobody_passes_before_all_parties_have_come(stage: Stage, locks: Front, rival: Front) -> None:
    waiting = [stage.begin(stage.another(client).barrier("b", parties=3).wait()) for client in (locks, rival)]
    await arrived(stage, locks, 2)
    assert not any(task.done() for task in waiting)
    last = stage.begin(stage.another(rival).barrier("b", parties=3).wait())
    generations = await soon(asyncio.gather(*waiting, last))

    assert len(set(generations)) == 1


@needs("shared", "cells")
async def test_generation_follows_generation(stage: Stage, locks: Front, rival: Front) -> None:
    async def rounds(client: Front) -> list[Any]:
        barrier = client.barrier("b", parties=3)
        return [await barrier.wait(wait=10.0) for _ in range(4)]

    seen = await asyncio.wait_for(
        asyncio.gather(*(rounds(stage.another(client)) for client in (locks, rival, locks))), 30
    )
    assert seen[0] == seen[1] == seen[2]
    assert seen[0] == sorted(set(seen[0]))


@needs("shared", "cells")
async def test_a_party_that_gives_up_is_not_counted(stage: Stage, locks: Front, rival: Front) -> None:
    with pytest.raises(NotAcquired):
        await locks.barrier("b", parties=2).wait(wait=0.1)
    waiting = stage.begin(rival.barrier("b", parties=2).wait())
    await arrived(stage, locks, 1)

    assert not waiting.done()
    await soon(locks.barrier("b", parties=2).wait())
    await soon(waiting)


@pytest.mark.by_turns
@needs("shared", "cells")
async def test_a_dead_party_is_not_counted(stage: Stage, locks: Front, rival: Front) -> None:
    dying = await stage.client(ttl=0.4)
    stage.begin(dying.barrier("b", parties=2).wait())
    await arrived(stage, locks, 1)
    stage.silence(dying)
    await arrived(stage, locks, 0)
    waiting = stage.begin(locks.barrier("b", parties=2).wait())
    await arrived(stage, locks, 1)

    assert not waiting.done()
    await soon(rival.barrier("b", parties=2).wait())
    await soon(waiting)


@needs("shared", "cells")
async def test_another_number_of_parties_is_refused(stage: Stage, locks: Front, rival: Front) -> None:
    waiting = stage.begin(locks.barrier("b", parties=2).wait())
    await arrived(stage, rival, 1)

    with pytest.raises(InvalidRequest) as refused:
        await rival.barrier("b", parties=3).wait(wait=5.0)
    assert refused.value.argument == "parties"
    assert not waiting.done()
    await soon(rival.barrier("b", parties=2).wait())
    await soon(waiting)


@needs("shared", "cells")
async def test_a_barrier_of_one_lets_through_at_once(locks: Front) -> None:
    barrier = locks.barrier("b", parties=1)

    assert await barrier.wait(wait=1.0) < await barrier.wait(wait=1.0)
