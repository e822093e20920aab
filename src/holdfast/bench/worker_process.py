"""The parent's side of a worker: a real process that is told what to do, a line at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from holdfast.bench.subject import Subject, as_data
from holdfast.errors import HoldfastError


class WorkerProcess:
    """A process that runs one job. It ends when its input does."""

    def __init__(self, act: str, subject: Subject, job: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.bench.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._send({"act": act, "subject": as_data(subject), **job})

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def say(self, word: str) -> None:
        """Tell the worker to go on."""
        self._send(word)

    def hear(self, word: str) -> dict[str, Any]:
        """Wait for the worker to say this, and nothing else."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise HoldfastError(f"a worker of the benchmark ended before it was {word!r}; its error is above")
        message: dict[str, Any] = json.loads(line)
        assert message["word"] == word, f"expected {word!r}, heard {message!r}"
        return message

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
