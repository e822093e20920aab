"""System calls that fail in a running process, made so by strace."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from holdfast.verify.refusal import NotAllowed

PATIENCE = 10.0
"""How long strace may take, in seconds, to let go of a process."""


@contextmanager
def failing(pid: int, calls: str, error: str = "EIO", *, others: Iterable[int] = ()) -> Iterator[None]:
    """Let these calls of a process, and of `others`, fail in all threads for as long as the `with` lasts."""
    if shutil.which("strace") is None:
        raise NotAllowed("failing system calls", "strace is not installed: apt install strace")
    traced = [part for each in (pid, *others) for part in ("-p", str(each))]
    command = ["strace", "-f", *traced, "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}"]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    if "attached" not in said:
        tracer.wait()
        tracer.stderr.close()
        raise NotAllowed("failing system calls", f"strace cannot attach: allow ptrace, or run as root ({said.strip()})")
    try:
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        try:
            tracer.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            # It waits for ever for a thread that ended while it let go. The kernel lets go of the threads of a tracer
            # that was killed.
            tracer.kill()
            tracer.communicate()
