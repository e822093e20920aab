"""Cells are linearizable: 16 writers, on a wire that is cut under them, and a judge of what they saw.

`HOLDFAST_KILLS` makes it longer.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import holdfast
from holdfast.locks.cell import CellFront
from holdfast.runtime import clock
from holdfast.verify.checkers import cells
from holdfast.verify.history import Call, History, Outcome
from holdfast.verify.proxy import Proxy
from tests.without_lock.versions import violations

WRITERS = 16
CALLS = 80 * int(os.environ.get("HOLDFAST_KILLS", "8"))
UPDATES = 1000


@contextmanager
def behind_proxies(url: str) -> Iterator[tuple[str, list[Proxy]]]:
    """The same engine through a proxy for each of its servers; none where there is no wire."""
    with ExitStack() as stack:
        proxies: list[Proxy] = []

        def moved(found: re.Match[str]) -> str:
            proxies.append(stack.enter_context(Proxy("127.0.0.1", int(found[1]))))
            return f"127.0.0.1:{proxies[-1].port}"

        yield re.sub(r"127\.0\.0\.1:(\d+)", moved, url), proxies


class Writer:
    """Reads and writes one cell, and remembers what came of it."""

    def __init__(self, number: int, url: str) -> None:
        self.number, self.cell_of = number, holdfast.connect(url)
        self.cell = self.cell_of.cell("c")
        self.calls: list[Call] = []
        self.chance = random.Random(number)
        self.numbers = itertools.count()

    def work(self) -> None:
        for _ in range(CALLS // WRITERS // 2):
            seen = self.get()
            blind = self.chance.random() < 0.2
            time.sleep(self.chance.uniform(0.0, 0.002))  # so that others come between, however quick the engine is
            if blind or seen is not None:
                self.set(None if blind else seen)

    def get(self) -> int | None:
        start = clock.now()
        try:
            value, version = self.cell.get()
        except holdfast.EngineUnavailable:
            return None
        self.note("cell_get", start, "ok", value=value, version=version)
        return version

    def set(self, expected: int | None) -> None:
        value, start = f"{self.number}-{next(self.numbers)}", clock.now()
        try:
            version = self.cell.set(value, version=expected)
        except holdfast.Conflict as conflict:
            self.note(
                "cell_set", start, "failed", value=value, version=conflict.current, expected=expected, error="Conflict"
            )
        except holdfast.EngineUnavailable as error:
            if error.outcome == "unknown":
                self.note("cell_set", start, "unknown", value=value, expected=expected)
        else:
            self.note("cell_set", start, "ok", value=value, version=version, expected=expected)

    def note(self, op: str, start: float, outcome: Outcome, **facts: Any) -> None:
        who = f"writer-{self.number}"
        id_ = f"{who}-{len(self.calls)}"
        self.calls.append(Call(id_, op, who, start, clock.now(), outcome, name="c", kind="cell", **facts))


def harm(proxies: list[Proxy], over: threading.Event) -> None:
    """Cut connections, and replies under way, again and again."""
    chance = random.Random(7)
    while proxies and not over.wait(chance.uniform(0.0, 0.02)):
        proxy = chance.choice(proxies)
        if chance.random() < 0.2:
            proxy.cut()
        else:
            proxy.replies.set("cut", after=chance.randrange(80))


def test_what_sixteen_writers_saw_fits_one_order(any_url: str) -> None:
    over = threading.Event()
    with behind_proxies(any_url) as (url, proxies), ExitStack() as stack:
        writers = [Writer(number, url) for number in range(WRITERS)]
        for writer in writers:
            stack.enter_context(writer.cell_of)
            writer.cell.get()
        threads = [threading.Thread(target=writer.work) for writer in writers]
        harming = threading.Thread(target=harm, args=(proxies, over))
        for thread in [harming, *threads]:
            thread.start()
        for thread in threads:
            thread.join()
        over.set()
        harming.join()
        for proxy in proxies:
            proxy.heal()

    calls = [call for writer in writers for call in writer.calls]
    assert violations(calls) == []
    outcomes = {call.outcome for call in calls}
    assert outcomes >= {"ok", "failed"}
    assert not proxies or "unknown" in outcomes, "no reply was lost"


def test_a_thousand_updates_of_sixteen_writers_take_few_tries(any_url: str) -> None:
    tries = 0
    counting = threading.Lock()

    def add(value: int | None) -> int:
        nonlocal tries
        with counting:
            tries += 1
        return (value or 0) + 1

    def work(client: holdfast.Client, share: int) -> None:
        for _ in range(share):
            client.cell("c").update(add)

    with ExitStack() as stack:
        clients = [stack.enter_context(holdfast.connect(any_url)) for _ in range(WRITERS)]
        shares = [UPDATES // WRITERS + (number < UPDATES % WRITERS) for number in range(WRITERS)]
        threads = [threading.Thread(target=work, args=pair) for pair in zip(clients, shares, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert clients[0].cell("c").get()[0] == UPDATES
    print(f"{tries / UPDATES:.2f} tries an update")
    assert tries <= 3 * UPDATES


def test_a_write_that_pays_no_heed_to_the_version_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: compare-and-swap without the compare."""
    write = CellFront.write

    async def heedless(self: CellFront, kept: bytes | None, version: int | None, keep: float | None, by: float) -> int:
        return await write(self, kept, None, keep, by)

    monkeypatch.setattr(CellFront, "write", heedless)
    with ExitStack() as stack:
        writers = [Writer(number, "memory://heedless") for number in range(2)]
        for writer in writers:
            stack.enter_context(writer.cell_of)
        seen = writers[0].get()
        writers[1].set(seen)
        writers[0].set(seen)

    calls = [call for writer in writers for call in writer.calls]
    assert violations(calls) != []
    assert cells.check(History.of(calls)).state == "broken"


def call(op: str, start: float, end: float, outcome: Outcome, value: str | None, number: int, **facts: Any) -> Call:
    return Call("", op, "p", start, end, outcome, name="c", kind="cell", value=value, version=number, **facts)


GOOD = [
    call("cell_get", 0, 1, "ok", None, 0),
    call("cell_set", 1, 2, "ok", "a", 5, expected=0),
    call("cell_set", 2, 9, "unknown", "b", 0, expected=5),
    call("cell_set", 3, 4, "failed", "c", 7, expected=5),
    call("cell_get", 4, 5, "ok", "b", 7),
    call("cell_set", 5, 6, "ok", "d", 9),
]

WRONG = {
    "what was refused is seen": call("cell_get", 4, 5, "ok", "c", 8),
    "what nobody wrote is seen": call("cell_get", 4, 5, "ok", "x", 8),
    "a version has two values": call("cell_get", 4, 5, "ok", "a", 9),
    "less than was there is seen": call("cell_get", 8, 9, "ok", "b", 7),
    "nothing is seen after something": call("cell_get", 8, 9, "ok", None, 0),
    "what was expected had gone": call("cell_set", 7, 8, "ok", "e", 11, expected=7),
    "a version goes back": call("cell_set", 7, 8, "ok", "e", 8),
    "a value is seen before its writer began": call("cell_get", 0, 0.5, "ok", "a", 5),
}


def test_a_history_that_fits_one_order_passes() -> None:
    assert violations(GOOD) == []


@pytest.mark.parametrize("wrong", WRONG)
def test_the_judge_sees_what_cannot_be(wrong: str) -> None:
    assert violations([*GOOD, WRONG[wrong]]) != []
