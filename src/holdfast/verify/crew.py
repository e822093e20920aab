"""The client processes of a run, as the stage sees them: started, paused, killed, started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.verify.board import ROOM, Board
from holdfast.verify.client import Config
from holdfast.verify.network import ClientWire
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.process import ServerFailed, stands_still, wait_until
from holdfast.verify.target import Target
from holdfast.verify.uninterrupted import Uninterrupted

READY_WITHIN = 60.0


class Member:
    """One client process, and what stands between it and the servers: proxies, or a namespace of its own."""

    def __init__(
        self, config: Config, proxies: Sequence[Proxy], prefix: Sequence[str], wire: ClientWire | None = None
    ) -> None:
        self.config, self.proxies, self.wire = config, list(proxies), wire
        self.prefix = [*(wire.prefix if wire is not None else ()), *prefix]
        self.lives = 0
        self.surprises = 0
        self.said: list[str] = []
        self.pid = 0
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._ready = threading.Event()
        self.done = threading.Event()
        self.log = Path(config.folder) / f"{config.name}.log"

    def __repr__(self) -> str:
        return self.config.name

    @property
    def exposed(self) -> bool:
        """Whether something can be done to its connections."""
        return bool(self.proxies) or self.wire is not None

    @property
    def name(self) -> str:
        return self.config.name

    def start(self, shift: float = 0.0, prefix: Sequence[str] = ()) -> None:
        """Start it, again if it was killed; with a clock that is ahead, if that is how it is put into `prefix`."""
        self.lives += 1
        self._ready.clear()
        self.done.clear()
        config = replace(self.config, seed=self.config.seed + self.lives, shift=shift)
        command = [*self.prefix, *prefix, sys.executable, "-m", "holdfast.verify.client", config.text()]
        with self.log.open("ab") as log, Uninterrupted():
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
            self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
            self._reader.start()

    def wait_ready(self) -> None:
        """Wait until it works."""
        process = self._process
        assert process is not None
        wait_until(
            lambda: self._ready.is_set() or process.poll() is not None, READY_WITHIN, f"client {self.name} starting"
        )
        if not self._ready.is_set():
            raise ServerFailed(f"client {self.name}", f"ended at its start:\n{self.log.read_text()[-3000:]}")

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "ready":
                self.pid = int(rest)
                self._ready.set()
            elif word == "done":
                self.done.set()
            elif word == "surprise":
                self.surprises += 1
            else:
                self.said.append(line.strip())

    @property
    def running(self) -> bool:
        """Whether its process is there, paused or not."""
        return self._process is not None and self._process.poll() is None

    def hear_out(self) -> None:
        """Take what one that has ended said last."""
        if self._reader is not None and not self.running:
            self._reader.join(READY_WITHIN)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; one that has ended meanwhile is no problem."""
        if self.running and self._ready.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self) -> None:
        """SIGSTOP; when it returns, none of its threads does anything any more."""
        self.send(signal.SIGSTOP)
        wait_until(lambda: stands_still(self.pid), READY_WITHIN, f"client {self.name} stopping")

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self.send(signal.SIGKILL)
        self._process.kill()
        self._bury()

    def _bury(self) -> None:
        """Wait for its end, and close what led to it."""
        assert self._process is not None
        assert self._reader is not None
        self._process.wait(READY_WITHIN)
        self._reader.join(READY_WITHIN)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process = None

    def say(self, word: str) -> None:
        """Tell it something, if it can hear."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End it, however it is."""
        if self.running:
            self.kill()
        elif self._process is not None:
            self._bury()
        for proxy in self.proxies:
            proxy.close()


class Crew:
    """All clients of a run: blocking and asyncio ones in turn, every second pair with something before its wires."""

    def __init__(self, target: Target, config: Config, count: int, *, proxied: bool) -> None:
        self.members: list[Member] = []
        self.board = Board(Path(config.folder) / "board", ROOM - 1)
        for place in range(count):
            through = proxied and place % 4 in (1, 2)
            proxies = [Proxy(host, port) for host, port in target.addresses] if through else []
            wire = target.network.client_wire() if through and target.direct and target.network else None
            ways = [("127.0.0.1", proxy.port) for proxy in proxies] or target.addresses
            one = replace(
                config, name=f"c{place + 1}", place=place, url=target.url(ways), seed=config.seed * 1000 + place * 37,
                style="asyncio" if place % 2 else "blocking",
            )  # fmt: skip
            self.members.append(Member(one, proxies, target.client_prefix, wire))

    def start(self) -> None:
        """Start all of them at once."""
        for member in self.members:
            member.start()
        for member in self.members:
            member.wait_ready()

    def holding(self, member: Member) -> int:
        """How much it showed last that it holds."""
        return self.board.holding(member.config.place)

    def close(self) -> None:
        for member in self.members:
            member.close()
