"""What is kept in ZooKeeper, and what is not: lines, cells, notes, tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast import EngineUnavailable
from holdfast.bench.counting import Counter
from holdfast.engines.zookeeper import tidying
from holdfast.engines.zookeeper.cells import pack
from holdfast.engines.zookeeper.line import Layout
from holdfast.locks.tokens import raise_tokens
from holdfast.runtime.blocking import run
from tests.engines.zookeeper.patience import eventually
from tests.servers.zookeeper import ZooKeeperServer


@pytest.fixture
def kazoo(server: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(server.address)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def layout(chroot: str) -> Layout:
    return Layout(chroot, "holdfast")


def everything(kazoo: KazooClient, path: str) -> list[str]:
    """All nodes under a path."""
    found = []
    for child in kazoo.get_children(path):
        found += [f"{path}/{child}", *everything(kazoo, f"{path}/{child}")]
    return found


def test_an_uncontended_pair_on_a_name_in_use_is_three_requests(url: str) -> None:
    with holdfast.connect(url) as locks:
        locks.lock("k").acquire().release()
        counter = Counter()
        counter.around_client(locks._core)
        for _ in range(10):
            locks.lock("k").acquire().release()

        assert 30 <= counter.requests <= 32  # and a heartbeat, should one be due


def test_a_client_that_was_closed_leaves_nothing_behind(url: str, kazoo: KazooClient, layout: Layout) -> None:
    with holdfast.connect(url) as locks:
        locks.lock("released").acquire().release()
        held = [locks.lock(f"held-{number}").acquire() for number in range(3)]
        permit = locks.semaphore("s", limit=2).acquire()
        held += [permit]
    kinds = [f"{layout.claims}/{kind}" for kind in ("lock", "semaphore")] + [f"{layout.permits}/semaphore"]

    assert sorted(everything(kazoo, layout.root)) == sorted(
        [layout.base, layout.sessions, layout.notes, layout.claims, layout.permits, layout.cells, *kinds]
    )


def test_a_line_that_nobody_uses_is_removed_after_a_while(
    url: str, kazoo: KazooClient, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "UNUSED", 0.3)
    with holdfast.connect(url, ttl=1.0) as locks:
        locks.lock("brief").acquire().release()
        held = locks.lock("kept").acquire()
        assert kazoo.exists(layout.line("holdfast.lock", "brief"))

        eventually(lambda: not kazoo.exists(layout.line("holdfast.lock", "brief")), "the removal")
        held.check()
        locks.lock("brief").acquire().release()
        held.release()


def test_lines_that_others_left_are_found_by_a_patrol(
    url: str, kazoo: KazooClient, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "PATROL", 0.5)
    left, used = layout.line("holdfast.lock", "left"), layout.line("holdfast.lock", "used")
    dead, live = layout.cell("holdfast.cell", "dead"), layout.cell("holdfast.cell", "live")
    monkeypatch.setattr(tidying, "CELL_KEPT", 0.2)
    with holdfast.connect(url, ttl=1.0) as locks:
        held = locks.lock("used").acquire()
        kazoo.ensure_path(left)
        kazoo.ensure_path(layout.cells + "/cell")
        kazoo.create(dead, pack(None, None))
        kazoo.create(live, pack(b"jtrue", None))

        eventually(lambda: not kazoo.exists(left) and not kazoo.exists(dead), "the patrol")
        assert kazoo.exists(used)
        assert locks.cell("live").get()[0] is True
        held.release()


def test_versions_of_a_cell_grow_although_its_node_is_new(url: str, kazoo: KazooClient, layout: Layout) -> None:
    with holdfast.connect(url) as locks:
        cell = locks.cell("c")
        first = cell.set("a")
        for _ in range(3):
            first = cell.set("b", version=first)
        cell.delete()
        kazoo.delete(layout.cell("holdfast.cell", "c"))  # as is done a day later
        second = cell.set("c", version=0)

        assert second > first
        with pytest.raises(holdfast.Conflict):
            cell.set("d", version=first)


def test_the_next_in_line_removes_a_broken_claim_if_its_breaker_is_gone(
    url: str, kazoo: KazooClient, layout: Layout
) -> None:
    """A holder whose session lives and that reads no notes; nobody else would ever end its hold."""
    with holdfast.connect(url) as locks:
        locks.lock("k").acquire().release()
        line = layout.line("holdfast.lock", "k")
        deaf = "aaaaaaaaaaaa"
        kazoo.create(layout.note(deaf), json.dumps({"ttl": 0.5, "ended": {}}).encode(), ephemeral=True)
        kazoo.create(f"{line}/x.{deaf}-1.", b"{}", ephemeral=True, sequence=True)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(locks.lock("k").acquire)
            eventually(lambda: len(kazoo.get_children(line)) == 2, "standing in line")
            kazoo.set(layout.note(deaf), json.dumps({"ttl": 0.5, "ended": {f"{deaf}-1": "broken"}}).encode())
            waiting.result(40.0).release()


def test_tokens_can_be_raised_while_nobody_is_connected(url: str) -> None:
    with holdfast.connect(url) as locks:
        held = locks.lock("k").acquire()
        above = held.token + 10**9
        with holdfast.connect(url) as operator, pytest.raises(EngineUnavailable, match="in use"):
            run(raise_tokens(operator._core, above))
        held.release()
    with holdfast.connect(url) as operator:
        run(raise_tokens(operator._core, above))
        run(raise_tokens(operator._core, 5))
    with holdfast.connect(url) as locks, locks.lock("k") as grant:
        assert grant.token > above


def test_a_namespace_of_a_newer_layout_is_refused(url: str, kazoo: KazooClient, layout: Layout) -> None:
    with holdfast.connect(url) as locks:
        locks.lock("k").acquire().release()
    kazoo.set(layout.base, json.dumps({"layout": 2, "base": 1}).encode())

    with holdfast.connect(url) as locks, pytest.raises(holdfast.HoldfastError, match="layout 2"):
        locks.lock("k").acquire(wait=5.0)


def test_a_deleted_cell_is_gone_whatever_the_clocks_say(url: str) -> None:
    with holdfast.connect(url) as locks:
        locks.cell("c").set("a")
        locks.cell("c").delete()
        engine: Any = locks._core.engine
        for link in engine.ledger.links():
            link.clock.note(SimpleNamespace(mtime=0))

        assert locks.cell("c").get() == (None, 0)
