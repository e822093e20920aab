"""Child processes that a test starts, talks to, stops, interrupts and kills.

A child runs one function, named `module:function`, and tells its test what it does, one JSON value
a line. Whatever is left of it when the test ends is killed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 20.0
"""How long a condition may take on a machine that is busy with other things."""


class Child:
    """One process. `hear` and `expect` read what it tells; `ask` writes a line to it."""

    def __init__(
        self, function: str, *args: object, prefix: Sequence[str] = (), env: dict[str, str] | None = None
    ) -> None:
        self.name = f"{function}{args}"
        command = [*prefix, sys.executable, "-m", "tests.faults.child", function, json.dumps(args)]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | (env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: list[str] = []
        self._readers = [threading.Thread(target=read) for read in (self._read_lines, self._read_errors)]
        for reader in self._readers:
            reader.start()
        self.pid: int = self.hear()["pid"]
        """The child's own, even if a prefix runs it as a grandchild."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, __: object, ___: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.kill()
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not (stream is self.process.stdin and stream.closed):
                close(stream)

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    @property
    def complaints(self) -> str:
        """What it has written to its standard error."""
        return "".join(self._errors)

    def hear(self, within: float = PATIENCE) -> Any:
        """The next thing that it tells."""
        try:
            line = self._lines.get(timeout=within)
        except queue.Empty:
            raise AssertionError(f"{self.name} told nothing within {within:g} s\n{self.complaints}") from None
        if line is None:
            for reader in self._readers[1:]:
                reader.join(timeout=1.0)
            raise AssertionError(f"{self.name} has ended\n{self.complaints}")
        return json.loads(line)

    def expect(self, wanted: object, within: float = PATIENCE) -> None:
        """The next thing that it tells is exactly this."""
        heard = self.hear(within)
        assert heard == wanted, f"{self.name} told {heard!r}, not {wanted!r}\n{self.complaints}"

    def tells_nothing(self) -> bool:
        """Whether nothing that it told is waiting to be heard."""
        return self._lines.empty()

    def ask(self, line: str = "") -> None:
        """Write a line to the child, which reads it with `input()`."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """SIGSTOP, returning when it really stands."""
        os.kill(self.pid, signal.SIGSTOP)
        eventually(lambda: state(self.pid) in "Tt", f"{self.name} did not stop")

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def interrupt(self) -> None:
        """SIGINT: Ctrl-C."""
        os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL, returning when it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def ended(self, within: float = PATIENCE) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(within)


def close(stream: Any) -> None:
    """Close a pipe whose other end may be gone, with something still unwritten in it."""
    try:
        stream.close()
    except BrokenPipeError:
        return


def state(pid: int) -> str:
    """The process's state letter: `R` running, `S` asleep, `T` stopped, `t` stopped by a tracer."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def eventually(condition: Callable[[], object], otherwise: str, within: float = PATIENCE) -> None:
    """Wait until the condition holds."""
    until = time.monotonic() + within
    while not condition():
        assert time.monotonic() < until, f"{otherwise} within {within:g} s"
        time.sleep(0.002)


def switches(pid: int) -> int:
    """How often the threads of a process have gone to sleep and been woken so far."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total
