"""Being told: of very much at once, and after the connection was lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import holdfast
from holdfast.runtime.blocking import run
from holdfast.verify.proxy import Proxy
from tests.engines.zookeeper.patience import eventually

MANY = 600
"""More than a bell of one byte an event could hold."""


def test_the_end_of_a_session_with_very_many_locks_is_told_whole(url: str) -> None:
    with holdfast.connect(url) as watcher, holdfast.connect(url) as holder:
        held = [holder.lock(f"k{number}").acquire() for number in range(MANY)]
        with watcher.watch("") as events:
            engine: Any = holder._core.engine
            for link in engine.ledger.links():
                link.say_farewell()
            told = Counter(next(events).type for _ in range(MANY))

        assert told == {"expired": MANY}
        eventually(lambda: not any(grant.valid for grant in held), "the holder knowing")


def test_a_watcher_whose_connection_broke_is_told_that_events_were_missed(url: str, far_url: str, proxy: Proxy) -> None:
    with holdfast.connect(far_url) as watcher, holdfast.connect(url) as locks:
        locks.lock("k").acquire().release()
        with watcher.watch("") as events:
            proxy.go_down()
            locks.lock("k").acquire().release()
            proxy.heal()
            with pytest.raises(holdfast.HoldfastError, match="events of the watch were missed"):
                next(events)
        with watcher.watch("") as events:
            held = locks.lock("k").acquire()
            told = next(events)
            held.release()

        assert (told.type, told.name, told.token) == ("granted", "k", held.token)


def test_grants_that_are_over_before_the_watcher_can_read_them_are_told(url: str, far_url: str, proxy: Proxy) -> None:
    """The record of a release is overwritten by that of the next one."""
    with holdfast.connect(far_url) as watcher, holdfast.connect(url) as locks:
        permits = locks.semaphore("s", limit=2)
        for taken in (locks.lock("k"), permits):
            taken.acquire().release()
        with watcher.watch("") as events:
            proxy.requests.set("stall")
            for taken in (locks.lock("k"), permits):
                for _ in range(3):
                    taken.acquire().release()
            proxy.heal()
            told = [next(events) for _ in range(12)]

    assert [(event.type, event.name) for event in told] == [
        *[("granted", "k"), ("released", "k")] * 3,
        *[("granted", "s"), ("released", "s")] * 3,
    ]
    assert [event.claim for event in told[::2]] == [event.claim for event in told[1::2]]
    # Of the last one the record is there; of the others their nodes' names are known.
    assert [event.token is None for event in told] == [True] * 4 + [False] * 2 + [True] * 4 + [False] * 2


def test_a_watcher_of_a_cell_whose_connection_broke_sees_the_change(url: str, far_url: str, proxy: Proxy) -> None:
    with holdfast.connect(far_url) as watcher, holdfast.connect(url) as locks:
        locks.cell("c").set("a")
        with watcher.cell("c").watch() as values:
            assert next(values)[0] == "a"
            proxy.cut()
            locks.cell("c").set("b")
            assert next(values)[0] == "b"
            locks.cell("c").set("c")
            assert next(values)[0] == "c"


def test_permits_are_told_too(url: str) -> None:
    with holdfast.connect(url) as watcher, holdfast.connect(url) as locks:
        with watcher.watch("") as events:
            permit = locks.semaphore("s", limit=1).acquire()
            permit.release()
            told = [next(events) for _ in range(2)]

        assert [(event.type, event.kind, event.token) for event in told] == [
            ("granted", "semaphore", permit.token),
            ("released", "semaphore", permit.token),
        ]


def test_a_cells_watch_that_is_armed_anew_has_its_value_read_again(url: str) -> None:
    """The change that disarmed it was read before; another one may have come between."""
    with holdfast.connect(url) as locks:
        locks.lock("warm").acquire().release()
        session = locks._core.session
        assert session is not None
        verbs: Any = locks._core.verbs
        until = locks._core.until()
        run(verbs.cell_watch(session.id, "w", "holdfast.cell", "c", until))
        locks.cell("c").set("a")
        watch = verbs.engine.watches["w"]
        eventually(lambda: not watch.armed, "the change")
        first = run(verbs.fetch(session.id, "w", 0, until))
        watch.armed = False  # as if another change had come while it was armed
        second = run(verbs.fetch(session.id, "w", first.last, until))

        assert second.events
        assert not run(verbs.fetch(session.id, "w", second.last, until)).events
