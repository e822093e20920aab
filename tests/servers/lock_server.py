"""A real lock server: `holdfast serve` in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import hiredis

from holdfast.engines.resp.wire import Part, pack
from holdfast.verify.servers import lock_server
from holdfast.verify.servers.process import wait_until

WITHIN = 20.0
CHEAP = 16
"""What a check of a password costs where it is not about that: nothing that one could measure."""


class LockServer(lock_server.LockServer):
    """`holdfast serve` with a store in memory, unless told; `config` is the text of its configuration file."""

    def __init__(self, *options: str, store: str = "memory://", config: str = "") -> None:
        super().__init__(*options, store=store)
        self.http_port = self.own_port()
        self._wires: list[Wire] = []
        self.configure(config)

    @property
    def config(self) -> Path:
        return self.folder / "server.toml"

    def configure(self, text: str) -> None:
        """Write the configuration; a running server takes it over at `reload`."""
        self.config.write_text(text)

    def reload(self, event: str = "configuration reloaded") -> None:
        """SIGHUP, and wait until it says that it is done."""
        before = self.log.read_text().count(event)
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: self.log.read_text().count(event) > before, WITHIN, event)

    def command(self) -> list[str]:
        return [*super().command(), "--http", f"127.0.0.1:{self.http_port}", "--config", str(self.config)]

    def start(self) -> Self:
        self._listened = self._count()
        return super().start()

    def is_ready(self) -> bool:
        return self._count() > self._listened

    def _count(self) -> int:
        """How often it has said that it listens."""
        return self.log.read_text().count('"event": "listening"') if self.log.exists() else 0

    def speak(self, version: int = 2, tls: ssl.SSLContext | None = None) -> Wire:
        """A connection to it, closed with it if nobody does that before."""
        self._wires.append(Wire(self.port, version, tls))
        return self._wires[-1]

    def close(self) -> None:
        for wire in self._wires:
            wire.close()
        super().close()


class Wire:
    """A connection that speaks RESP by hand: what is sent and what comes is all in the test's hands."""

    def __init__(self, port: int, version: int = 2, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.socket: socket.socket = socket.create_connection((host, port), WITHIN)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader(encoding="utf-8", errors="surrogateescape")
        self.pushes: list[list[Any]] = []
        self.secret = ""
        try:
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
            if version == 3:
                assert self("HELLO", 3)["proto"] == 3
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, *parts: Part) -> Any:
        """Send a command; its reply. An error comes back as an exception that is not raised."""
        self.send(*parts)
        return self.reply()

    def send(self, *parts: Part) -> None:
        self.socket.sendall(pack(parts))

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Any:
        """The next thing that comes, reply or push. EOFError when the server has closed."""
        while True:
            found = self._reader.gets()
            if found is not False:
                return found
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the server closed the connection")
            self._reader.feed(data)

    def reply(self) -> Any:
        """The next reply; pushes before it are put aside."""
        while True:
            found = self.read()
            if not isinstance(found, hiredis.PushNotification):
                return found
            self.pushes.append(list(found))

    def push(self) -> list[Any]:
        """The next push."""
        if self.pushes:
            return self.pushes.pop(0)
        found = self.read()
        assert isinstance(found, hiredis.PushNotification), f"a reply that nobody waits for: {found!r}"
        return list(found)

    def rest(self) -> Iterator[Any]:
        """All that comes until the server closes."""
        while True:
            try:
                yield self.read()
            except (EOFError, ConnectionError):
                return

    def open(self, ttl: int = 60_000, *options: Part) -> str:
        """Open a session with an id and a secret that the server chooses; the id."""
        word, _, session, self.secret = self("HF.OPEN", "*", "*", ttl, *options)
        assert word == "open"
        return str(session)

    def close(self) -> None:
        self.socket.close()
