"""A process that many servers of a test run in: it is told a line for each, answers with one, and can be stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from holdfast.verify.servers.process import stands_still, wait_until


class Host:
    """Runs a module as a program; its servers' URLs lead back to it."""

    _by_url: ClassVar[dict[str, Host]] = {}

    def __init__(self, module: str, env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=os.environ | (env or {}),
        )

    def ask(self, line: str) -> str:
        """Tell it a line; what it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        return self._process.stdout.readline().rstrip("\n")

    def runs(self, url: str) -> str:
        """Remember that a server of it is there."""
        self._by_url[url] = self
        return url

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    @classmethod
    @contextmanager
    def of_url_stands_still(cls, url: str) -> Iterator[None]:
        """All its servers are stopped: connections stay open, nothing is answered."""
        pid = cls._by_url[url]._process.pid
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: stands_still(pid), 60.0, "the lock servers standing still")
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
