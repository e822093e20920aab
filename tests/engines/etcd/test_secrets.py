"""TLS, client certificates, and user and password: by URL options."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast import EngineUnavailable, InvalidRequest, aio
from holdfast.engines.etcd.wire import WATCH, Wire
from holdfast.locks import acquire
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.etcd import EtcdServer, newer_etcd
from holdfast.verify.servers.process import free_port
from tests.servers.process import find, wait_until


def certify(folder: Path) -> None:
    """A certificate that signs itself, for the server and for clients."""
    subprocess.run(
        [
            find("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem",
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EtcdServer, Path]]:
    folder = tmp_path_factory.mktemp("certificates")
    certify(folder)
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    options = ("--cert-file", cert, "--key-file", key, "--trusted-ca-file", cert, "--client-cert-auth")
    with EtcdServer(*options, tls=True) as server:
        yield server, folder


@pytest.fixture(scope="module", params=["3.4", "3.5"])
def guarded(request: pytest.FixtureRequest) -> Iterator[EtcdServer]:
    """A server that wants to know who is there."""
    with EtcdServer(binary=newer_etcd() if request.param == "3.5" else None) as server:
        tell(server, "user", "add", "root:toor")
        tell(server, "user", "grant-role", "root", "root")
        tell(server, "role", "add", "locker")
        tell(server, "role", "grant-permission", "locker", "readwrite", "--prefix=true", "/holdfast/1/")
        add_user(server)
        tell(server, "auth", "enable")
        yield server


def tell(server: EtcdServer, *words: str) -> None:
    """Give an order with etcd's own client."""
    command = [find("etcdctl"), f"--endpoints={server.endpoint}", *words]
    subprocess.run(command, check=True, capture_output=True, env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"})


def add_user(server: EtcdServer, *operator: str) -> None:
    """The user that the tests sign in as."""
    tell(server, *operator, "user", "add", "locks:pass word")
    tell(server, *operator, "user", "grant-role", "locks", "locker")


def restart_without_tokens(server: EtcdServer) -> None:
    """Restart, with the same users. A restart alone brings tokens back: etcd replays its log, sign-ins included."""
    operator = "--user=root:toor"
    tell(server, operator, "user", "delete", "locks")
    add_user(server, operator)
    server.kill()
    server.start()


def signed_in_again(wire: Wire, former: str | None) -> bool:
    return wire.known_token not in (None, former)


async def test_a_lock_is_taken_over_tls_with_a_client_certificate(secure: tuple[EtcdServer, Path]) -> None:
    server, folder = secure
    url = f"{server.url}?ca={folder}/cert.pem&cert={folder}/cert.pem&key={folder}/key.pem"
    with holdfast.connect(url) as locks, locks.lock("k") as held:
        assert held.valid
    async with aio.connect(url) as tasks, tasks.lock("k") as held_too:
        assert held_too.token > held.token


def test_a_server_that_nobody_vouches_for_is_refused(secure: tuple[EtcdServer, Path]) -> None:
    server, folder = secure
    url = f"{server.url}?tls=1&cert={folder}/cert.pem&key={folder}/key.pem"
    with holdfast.connect(url) as locks, pytest.raises(EngineUnavailable):
        locks.lock("k").acquire(wait=0.5)


async def test_signing_in_goes_on_at_the_next_endpoint(guarded: EtcdServer) -> None:
    url = f"etcd://locks:pass%20word@127.0.0.1:{free_port()},{guarded.endpoint}"
    with holdfast.connect(url) as locks, locks.lock("blocking") as grant:
        assert grant.valid
    async with aio.connect(url) as others, others.lock("aio") as held:
        assert held.valid


async def test_a_lock_is_taken_with_user_and_password(guarded: EtcdServer) -> None:
    url = f"etcd://locks:pass%20word@{guarded.endpoint}"
    with holdfast.connect(url) as locks:
        with locks.lock("k") as held:
            assert held.valid
        assert "pass" not in str(locks._core)
        locks._core.engine.wire._token = "stale.1"  # type: ignore[attr-defined]
        with locks.lock("k") as again:
            assert again.token > held.token
    async with aio.connect(url) as tasks, tasks.lock("k") as held_too:
        assert held_too.valid


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_busy_executor_keeps_no_user_from_signing_in(guarded: EtcdServer, host: str) -> None:
    """The application may fill the loop's executor with work of its own."""
    free, loop = threading.Event(), asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = [loop.run_in_executor(None, free.wait) for _ in range(2)]
    try:
        async with aio.connect(f"etcd://locks:pass%20word@{host}:{guarded.port}") as locks:
            for name in ("first", "next"):
                await (await locks.lock(name).acquire(wait=5.0)).release()
        assert not any(work.done() for work in busy)
    finally:
        free.set()
        await asyncio.gather(*busy)


def test_nobody_waits_until_all_others_have_tried_to_sign_in(guarded: EtcdServer) -> None:
    host, port = guarded.endpoint.split(":")
    with Proxy(host, int(port)) as proxy, ThreadPoolExecutor(16) as threads:
        with holdfast.connect(f"etcd://locks:pass%20word@127.0.0.1:{proxy.port}") as locks:
            locks.lock("k").acquire().release()
            proxy.requests.set("stall")
            locks._core.engine.wire.forget_token()  # type: ignore[attr-defined]
            asked = [threads.submit(locks.lock(f"k{number}").acquire, wait=0.2) for number in range(16)]
            done, _ = wait(asked, timeout=6.0)
            proxy.heal()

            assert done == set(asked)
            assert all(isinstance(each.exception(), EngineUnavailable) for each in asked)


def waits(client: holdfast.Client, name: str) -> bool:
    return len(client.inspect(name).waiters) == 1


def test_watches_are_made_again_with_a_new_token_after_a_restart(
    guarded: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd accepts the stream with the token of before, and refuses every watch in it."""
    monkeypatch.setattr(acquire, "FIRST_POLL", 3600.0)  # only a watch wakes a waiter
    url = f"etcd://locks:pass%20word@{guarded.endpoint}"
    # No heartbeat comes, nor any other request of the client that waits: only its watch stream can find a new token.
    with holdfast.connect(url, ttl=600.0) as locks, holdfast.connect(url, ttl=600.0) as rival:
        for number in range(3):
            held = rival.lock(f"k{number}").acquire()
            with ThreadPoolExecutor(1) as threads:
                waiting = threads.submit(locks.lock(f"k{number}").acquire, wait=30.0)
                wait_until(partial(waits, rival, f"k{number}"), 20.0, "the waiter")
                counted: list[str] = []
                wire: Wire = locks._core.engine.wire  # type: ignore[attr-defined]
                wire.counted = counted.append
                if number == 0:
                    locks._core.engine.watcher.reconnected = lambda: None  # type: ignore[attr-defined]
                    former = wire.known_token
                    restart_without_tokens(guarded)
                    wait_until(partial(signed_in_again, wire, former), 20.0, "a new token")
                    assert set(counted) <= {WATCH}
                held.release()
                waiting.result().release()
            assert counted.count(WATCH) < 50


@pytest.mark.parametrize("who", ["", "locks:wrong@"])
def test_who_is_not_known_is_told_so(guarded: EtcdServer, who: str) -> None:
    with holdfast.connect(f"etcd://{who}{guarded.endpoint}") as locks:
        with pytest.raises(EngineUnavailable) as refused:
            locks.lock("k").acquire(wait=2.0)
    assert refused.value.outcome == "not done"
    assert "wrong" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("etcd://h/path", "hosts only"),
        ("etcd://h?ca=/nowhere/ca.pem", "cannot be read"),
        ("etcd://h?tls=0&ca=/dev/null", "no use without it"),
        ("etcd://h?cert=/dev/null", "needs both"),
        ("etcd://h?tsl=1", "did you mean 'tls'"),
    ],
)
def test_a_url_that_cannot_be_is_refused(url: str, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what):
        holdfast.connect(url)
