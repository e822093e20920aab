"""What a test needs the engine to be able to do; where it cannot, the test asserts that it says so.

Whether it can is read from its guarantees, and from nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

import pytest

from holdfast import Guarantees, Unsupported
from tests.conformance.apis import Front

Test = Callable[..., Coroutine[Any, Any, None]]
Calls = dict[str, Callable[[Any], object]]

BUILD: Calls = {
    "shared": lambda locks: locks.rwlock("k").read(),
    "semaphore": lambda locks: locks.semaphore("k", limit=2),
    "subtree": lambda locks: locks.lock("k", subtree=True),
}

CELLS: Calls = {
    "cell": lambda locks: locks.cell("k"),
    "latch": lambda locks: locks.latch("k", count=1),
    "barrier": lambda locks: locks.barrier("k", parties=2),
    "once": lambda locks: locks.once("k"),
    "partition": lambda locks: locks.partition("k"),
    "log": lambda locks: locks.log("k"),
}
"""What is kept in cells."""

RECORD: Calls = {
    "list": lambda locks: locks.list(),
    "break": lambda locks: locks.break_lock("k"),
    "forced break": lambda locks: locks.break_lock("k", force=True),
}

EVENTS: Calls = {
    "watch": lambda locks: locks.watch(),
    "observe": lambda locks: locks.election("k").observe(),
}

HAND_OVER: Calls = {"adopt": lambda locks: locks.adopt("hf1 a-1 b holdfast.lock x k")}
"""What begins it needs a grant: test_hand_over.py asserts that."""


@dataclass(frozen=True)
class Ability:
    """Something that an engine can do or not."""

    given: Callable[[Guarantees], bool]
    calls: Calls
    """What is refused where it cannot."""


ABILITIES = {
    "shared": Ability(lambda given: "shared" in given.modes, {"shared": BUILD["shared"]}),
    "semaphore": Ability(lambda given: "semaphore" in given.modes, {"semaphore": BUILD["semaphore"]}),
    "subtree": Ability(lambda given: "subtree" in given.modes, {"subtree": BUILD["subtree"]}),
    "cells": Ability(lambda given: given.cells, CELLS),
    "record": Ability(lambda given: given.recorded, RECORD),
    "events": Ability(lambda given: bool(given.events), EVENTS),
    "hand_over": Ability(lambda given: given.hand_over, HAND_OVER),
}


def needs(*abilities: str) -> Callable[[Test], Test]:
    """Run a test where the engine can do all of this; elsewhere, what it cannot do has to be refused."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        async def checked(**fixtures: Any) -> None:
            locks = next(fixture for fixture in fixtures.values() if isinstance(fixture, Front))
            missing = [each for each in abilities if not ABILITIES[each].given(locks.guarantees)]
            for each in missing:
                for call in ABILITIES[each].calls.values():
                    await refuses(locks, call)
            if not missing:
                await test(**fixtures)

        return checked

    return decorate


async def made(call: Callable[[Any], object], locks: Front) -> None:
    """Make a call, and await it if it waits."""
    answer = call(locks)
    if isawaitable(answer):
        await answer


async def refuses(locks: Front, call: Callable[[Any], object]) -> None:
    """Assert that a client refuses something, sends nothing for it, and says what to use instead."""
    core = locks.target._core
    verbs, core.verbs = core.verbs, None
    try:
        with pytest.raises(Unsupported) as refused:
            await made(call, locks)
    finally:
        core.verbs = verbs
    assert core.keeper is None, "it has opened a session"
    assert refused.value.engine == str(core)
    assert "://" in refused.value.instead
    assert refused.value.instead in str(refused.value)
