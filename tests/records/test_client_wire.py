"""What the client of `holdfast://` sends, and what it is answered, as a proxy between them sees it.

A transcript is of one connection: `>` is a request, word by word, `<` the bytes of a reply or a push. The names of the
locks say which step of the program it is.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

import holdfast
from holdfast import aio
from tests.records.record import Record
from tests.records.resp_text import Names, Reader
from tests.servers.lock_server import LockServer
from tests.servers.process import wait_until

TTL = 600.0
PATIENCE = 30.0
LEARNED = {
    "HF.OPEN": (("session", 1), ("secret", 2)),
    "HF.HANDOVER": (("ticket", 2),),
    "HF.ADOPT": (("claim", 2), ("ticket", 3)),
}
"""Where a request says what the client chose."""


class Watched:
    """One connection through the proxy, and what went over it."""

    def __init__(self, near: socket.socket, port: int, names: Names) -> None:
        self.near, self.far = near, socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.names = names
        self.lines: list[str] = []
        self._requests = b""
        self._replies = Reader(names)
        self._pumps = [threading.Thread(target=pump, daemon=True) for pump in (self._forward, self._return)]
        for pump in self._pumps:
            pump.start()

    def _forward(self) -> None:
        with suppress(OSError):
            while data := self.near.recv(65536):
                self._requests += data
                # Before it is sent, so that its reply cannot come first.
                self.lines += self._sent()
                self.far.sendall(data)
        self.close()

    def _return(self) -> None:
        with suppress(OSError):
            while data := self.far.recv(65536):
                self._replies.data += data
                while (reply := self._replies.next()) is not None:
                    self.lines.append(f"< {reply.text}")
                self.near.sendall(data)
        self.close()

    def _sent(self) -> Iterator[str]:
        while found := re.match(rb"\*(\d+)\r\n", self._requests):
            words, rest = [], self._requests[found.end() :]
            for _ in range(int(found[1])):
                header = re.match(rb"\$(\d+)\r\n", rest)
                end = header.end() + int(header[1]) if header else 0
                if header is None or len(rest) < end + 2:
                    return
                words.append(rest[header.end() : end].decode())
                rest = rest[end + 2 :]
            self._requests = rest
            for what, place in LEARNED.get(words[0], ()):
                self.names.name(what, words[place])
            yield f"> {' '.join(_shown(self.names.hide(word)) for word in words)}"

    def close(self) -> None:
        for end in (self.near, self.far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def finished(self) -> list[str]:
        """What went over it, once its client has closed it."""
        for pump in self._pumps:
            pump.join(PATIENCE)
            assert not pump.is_alive(), f"never closed: {self.lines}"
        return list(self._steady())

    def _steady(self) -> Iterator[str]:
        """The lines that come in every run: when a keeper sends a heartbeat is a matter of its thread's timing."""
        is_keepers, skips = any(" SIDE" in line for line in self.lines if line.startswith("> HF.OPEN")), False
        for line in self.lines:
            skips = (is_keepers and line.startswith("> HF.RENEW")) or (skips and not line.startswith(">"))
            if "hf.over" not in line and (not skips or "hf." in line):
                yield line


def _shown(word: str) -> str:
    shown = word.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return f'"{shown}"' if shown != word or " " in word or not word else word


def hidden(text: str) -> str:
    """The text without what is of this process and this machine."""
    host = socket.gethostname()
    text = text.replace(f"host\\r\\n${len(host)}\\r\\n{host}\\r\\n", "host\\r\\n$<n>\\r\\n<host>\\r\\n")
    text = re.sub(r"(?<=HOST )\S+", "<host>", text)
    text = re.sub(rf"(?<=PID ){os.getpid()}\b|(?<=:){os.getpid()}\b", "<pid>", text)
    return re.sub(r"\bTask-\d+", "<task>", re.sub(r"/[at]\d+\b", "/<owner>", text))


class Proxy:
    """Passes connections on to a server, and keeps what they carry."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.direct = f"holdfast://127.0.0.1:{port}"
        """The server's own URL, for what no transcript is to show."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"holdfast://127.0.0.1:{self._listener.getsockname()[1]}"
        self.names = Names()
        self.connections: list[Watched] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections.append(Watched(near, self._to, self.names))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)
        for connection in self.connections:
            connection.close()
            connection.near.close()
            connection.far.close()

    def text(self) -> str:
        """All that went through, connection by connection."""
        blocks = ["\n".join([f"# Connection {n}", *each.finished()]) for n, each in enumerate(self.connections, 1)]
        return hidden("\n\n".join(blocks)) + "\n"


@contextmanager
def watched() -> Iterator[Proxy]:
    with LockServer(store="sqlite:///locks.db?ballast_mib=1") as server:
        proxy = Proxy(server.port)
        try:
            yield proxy
        finally:
            proxy.close()


def steps(locks: holdfast.Client) -> None:
    """One of everything that a client alone can do."""
    with locks.lock("acquire and release", note="the nightly run"):
        pass
    grant = locks.lock("try, then renew").try_acquire()
    assert grant is not None
    grant.renew()
    grant.release()
    with locks.lock("entered again", reentrant=True), locks.lock("entered again", reentrant=True):
        pass
    with locks.rwlock("read").read(), locks.lock("tree", subtree=True), locks.semaphore("permits", limit=2):
        pass
    with locks.lock_all("all/b", "all/a"):
        pass
    with locks.lock("held for a while", max_hold=300.0) as held:
        held.check()
    with locks.lock("a lock that is taken"), pytest.raises(holdfast.Deadlock):
        locks.lock("a lock that is taken").acquire()
    cell = locks.cell("a cell")
    cell.set("one", version=0)
    cell.update(lambda value: f"{value} and more")
    cell.delete()
    locks.latch("a latch", count=1).count_down()
    locks.once("once").run(lambda grant: "done")
    locks.log("a log").append(["one"], expected=0)
    locks.inspect("looked at")
    locks.list("all/")
    offered = locks.lock("offered").acquire()
    offered.hand_over()
    offered.release()


def test_a_blocking_client_says_what_is_recorded(record: Callable[[str], Record]) -> None:
    with watched() as proxy:
        with (
            holdfast.connect(proxy.url, app="billing", namespace="story", ttl=TTL) as locks,
            # Its own keeper lets go of what it handed over, sooner or later: that is not part of the transcript.
            holdfast.connect(proxy.direct, app="shipping", namespace="story", ttl=TTL) as sender,
        ):
            steps(locks)
            grant = sender.lock("handed over").acquire()
            locks.adopt(grant.hand_over()).release()
        text = proxy.text()

    record("client_wire/blocking.txt").compare(text)


def test_a_client_that_waits_says_what_is_recorded(record: Callable[[str], Record]) -> None:
    with watched() as proxy:
        with (
            holdfast.connect(proxy.url, app="billing", namespace="story", ttl=TTL) as billing,
            holdfast.connect(proxy.url, app="shipping", namespace="story", ttl=TTL) as shipping,
        ):
            held = billing.lock("waited for").acquire()
            with pytest.raises(holdfast.NotAcquired):
                shipping.lock("waited for").acquire(wait=0.05)
            waiter = threading.Thread(target=lambda: shipping.lock("waited for").acquire().release(), name="waiter")
            waiter.start()
            with holdfast.connect(proxy.direct, namespace="story") as looks:
                wait_until(lambda: bool(looks.inspect("waited for").waiters), PATIENCE, "a waiter")
            held.release()
            waiter.join(PATIENCE)
        text = proxy.text()

    record("client_wire/waiting.txt").compare(text)


def test_an_asyncio_client_says_what_is_recorded(record: Callable[[str], Record]) -> None:
    async def run(url: str) -> None:
        async with aio.connect(url, app="billing", namespace="story", ttl=TTL) as locks:
            async with locks.lock("acquire and release"):
                pass
            cell = locks.cell("a cell")
            await cell.set("one")

    with watched() as proxy:
        asyncio.run(run(proxy.url))
        text = proxy.text()

    record("client_wire/asyncio.txt").compare(text)
