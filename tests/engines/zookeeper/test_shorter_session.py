"""A server that grants a session less than the one before, or more: what a client then believes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

import holdfast
from holdfast.engines.zookeeper.engine import ZooKeeperEngine
from holdfast.engines.zookeeper.link import Link
from holdfast.verify.proxy import Proxy
from tests.engines.zookeeper.patience import eventually
from tests.servers.zookeeper import ZooKeeperServer

LONG, SHORT = 40.0, 2.0
MIDDLE = 10.0
"""Long enough to outlast a restart of the server."""


@pytest.fixture
def own_server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(f"maxSessionTimeout={LONG * 1000:.0f}") as server:
        yield server


def limit(server: ZooKeeperServer, seconds: float) -> None:
    """Give the server another maxSessionTimeout, and start it again."""
    server.settings = [setting for setting in server.settings if not setting.startswith("maxSessionTimeout")]
    server.settings.append(f"maxSessionTimeout={seconds * 1000:.0f}")
    server.stop()
    server.start()


def reached(client: holdfast.Client) -> bool:
    """Whether the client reaches its server."""
    with suppress(holdfast.EngineUnavailable):
        client.lock("reach").acquire(wait=1.0).release()
        return True
    return False


def test_a_holder_that_is_granted_less_after_a_reconnect_stops_before_another_holds(
    own_server: ZooKeeperServer, chroot: str
) -> None:
    with (
        Proxy("127.0.0.1", own_server.port) as proxy,
        holdfast.connect(f"zookeeper://127.0.0.1:{proxy.port}{chroot}", ttl=LONG) as far,
        holdfast.connect(own_server.url + chroot, ttl=SHORT) as near,
    ):
        held = far.lock("k").acquire()
        limit(own_server, SHORT)
        eventually(lambda: reached(far), "a connection")
        proxy.requests.set("stall")
        proxy.replies.set("stall")
        theirs = near.lock("k").acquire(wait=30.0)
        was_valid = held.valid
        proxy.heal()

        assert not was_valid
        assert theirs.token > held.token


def test_a_holder_that_is_granted_less_keeps_its_lock_by_heartbeats_that_come_more_often(
    own_server: ZooKeeperServer, chroot: str
) -> None:
    with holdfast.connect(own_server.url + chroot, ttl=LONG) as locks:
        held = locks.lock("k").acquire()
        limit(own_server, SHORT)
        eventually(lambda: not held.in_danger and held.remaining <= SHORT, "the shorter session")
        lost = threading.Event()
        held._hold.when_lost(lost.set)

        assert not lost.wait(2.5 * SHORT)
        held.check()


def test_the_shorter_session_counts_although_no_heartbeat_is_answered(
    own_server: ZooKeeperServer, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server counts by it from the moment at which it took the session on."""
    shortened = ZooKeeperEngine.link_shortened
    with Proxy("127.0.0.1", own_server.port) as proxy:

        def cut_off(engine: ZooKeeperEngine, session: str, link: Link) -> None:
            proxy.requests.set("stall")
            shortened(engine, session, link)

        monkeypatch.setattr(ZooKeeperEngine, "link_shortened", cut_off)
        with holdfast.connect(f"zookeeper://127.0.0.1:{proxy.port}{chroot}", ttl=LONG) as far:
            held = far.lock("k").acquire()
            limit(own_server, SHORT)
            eventually(lambda: proxy.requests.mode == "stall", "the server taking the session on")

            eventually(lambda: held.remaining <= SHORT, "the shorter session")
            eventually(lambda: not held.valid, "the end")
            proxy.heal()


def test_a_longer_session_is_not_believed_since_a_server_that_takes_over_counts_by_the_first(chroot: str) -> None:
    with ZooKeeperServer(f"maxSessionTimeout={MIDDLE * 1000:.0f}") as server, Proxy("127.0.0.1", server.port) as proxy:
        far = holdfast.connect(f"zookeeper://127.0.0.1:{proxy.port}{chroot}", ttl=LONG)
        near = holdfast.connect(server.url + chroot, ttl=SHORT)
        try:
            held = far.lock("k").acquire()
            limit(server, LONG)
            eventually(lambda: not held.in_danger, "the server taking the session on")
            held.renew()
            proxy.go_down()
            server.kill()
            server.start()
            started = time.monotonic()
            theirs = near.lock("k").acquire(wait=30.0)
            was_valid = held.valid
            took = time.monotonic() - started
        finally:
            proxy.heal()
            near.close()
            far.close()

        assert not was_valid
        assert theirs.token > held.token
        assert took < LONG / 2
