"""A worker of the story as the teller sees it: it can be told, asked, stopped and woken."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any


class StoryFailed(Exception):
    """The story went otherwise than it must."""


class Process:
    """One worker in a process of its own."""

    def __init__(self, who: str, *arguments: str) -> None:
        self.who = who
        self._rest = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.demo.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )

    def tell(self, *words: object) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")

    def answer(self, event: str, within: float) -> dict[str, Any]:
        """The answer to the last command. StoryFailed if it is not the event that the story needs."""
        assert self._process.stdout is not None
        until = time.monotonic() + within
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not readable:
                raise StoryFailed(f"{self.who} did not answer within {within:g} s: expected that it would be {event}")
            chunk = self._process.stdout.read(65536)
            if not chunk:
                raise StoryFailed(f"process {self.who} died: {self._last_words()}")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        if told["event"] != event:
            raise StoryFailed(f"{self.who} should have been {event}, but was {told['event']}: {told}")
        return told

    def ask(self, event: str, *words: object, within: float = 10.0) -> dict[str, Any]:
        """Send a command and wait for the event that must come of it."""
        self.tell(*words)
        return self.answer(event, within)

    def stop(self) -> None:
        """SIGSTOP: the process does nothing any more, and does not know it."""
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def wake(self) -> None:
        """SIGCONT."""
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill it, stopped or not."""
        self._process.kill()
        self._process.communicate()

    def _last_words(self) -> str:
        _, said = self._process.communicate()
        return said.decode(errors="replace").strip()[-2000:] or f"exit code {self._process.returncode}"
