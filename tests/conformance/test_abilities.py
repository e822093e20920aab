"""What an engine cannot do is refused when the lock is built."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from holdfast import Unsupported
from holdfast.engines import memory, registry
from tests.conformance.abilities import ABILITIES, BUILD, refuses
from tests.conformance.apis import Api, Front
from tests.conformance.engines import Subject
from tests.conformance.stage import Stage


class NarrowEngine(memory.MemoryEngine):
    """The engine in memory, promising exclusive locks and nothing else that could be refused."""

    schemes = ("narrow",)
    guarantees = replace(
        memory.GUARANTEES,
        modes=frozenset({"exclusive"}),
        events=frozenset(),
        cells=False,
        recorded=False,
        hand_over=False,
    )


@pytest.fixture
async def narrow(api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    """A client of an engine that knows exclusive locks only, registered as a third party would."""
    point = EntryPoint("narrow", f"{__name__}:NarrowEngine", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: (point,))
    stage = Stage(Subject("narrow", lambda _: pytest.fail("it needs no start"), False, None), api, "narrow://x")
    yield await stage.client()
    await stage.end()


@pytest.mark.parametrize("mode", BUILD)
async def test_a_mode_that_the_engine_lacks_is_refused_when_the_lock_is_built(narrow: Front, mode: str) -> None:
    with pytest.raises(Unsupported) as refused:
        BUILD[mode](narrow)
    assert mode in refused.value.what
    assert "sqlite://" in refused.value.instead


CALLS = {f"{name}: {each}": call for name, ability in ABILITIES.items() for each, call in ability.calls.items()}


@pytest.mark.parametrize("call", CALLS)
async def test_what_the_guarantees_rule_out_is_refused_before_anything_is_sent(narrow: Front, call: str) -> None:
    await refuses(narrow, CALLS[call])


async def test_a_grant_that_cannot_be_handed_over_says_so_and_is_kept(narrow: Front) -> None:
    held = await narrow.lock("k").acquire()
    with pytest.raises(Unsupported):
        await held.hand_over()
    held.check()


async def test_what_the_engine_can_do_it_does(narrow: Front) -> None:
    assert await narrow.lock("k").try_acquire() is not None
    assert await narrow.lock_all("a", "b").try_acquire() is not None
    assert await narrow.election("e", value="v").campaign(wait=1.0) is not None
