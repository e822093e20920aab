"""System calls that fail in a running process, made so by strace."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def failing(pid: int, calls: str, error: str = "EIO") -> Iterator[None]:
    """Let these calls of a process fail, in all of its threads, for as long as the `with` lasts."""
    command = ["strace", "-f", "-p", str(pid), "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}"]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    if "attached" not in said:
        tracer.wait()
        tracer.stderr.close()
        raise AssertionError(f"strace cannot attach: run this test as root, or allow ptrace ({said.strip()})")
    try:
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.communicate()
