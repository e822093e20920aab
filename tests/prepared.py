"""Processes of Python that have read Holdfast already.

The tests start hundreds of programs in Python, each of which would spend most of its time reading the same modules. So
`subprocess.Popen`, when a test starts one of `PROGRAMS`, asks a process that has read them to fork: this module, run as
a program. What comes of it is a child of the test as any other: it can be waited for, signalled, stopped and killed,
and has its own environment, folder and pipes. Whatever needs more than that is executed as ever: another user, a
function to call before, another PYTHONPATH.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import os
import pickle
import runpy
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[1]
PROGRAMS = (
    "holdfast.bench.worker",
    "holdfast.cli.main",
    "holdfast.demo.worker",
    "holdfast.verify.client",
    "tests.faults.child",
    "tests.faults.code",
    "tests.fence.worker",
)
READ = (
    "holdfast.engines.advisory.engine",
    "holdfast.engines.etcd.engine",
    "holdfast.engines.holdfast.engine",
    "holdfast.engines.postgres.engine",
    "holdfast.engines.redis.engine",
    "holdfast.engines.redlock.engine",
    "holdfast.engines.sqlite.engine",
    "holdfast.engines.zookeeper.engine",
    "holdfast.server.process",
    "tests.process.programs",
)
"""What they read later."""
MOST = 1 << 18
"""Bytes that an order may have."""
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER, of prctl(2)."""
READ_BY_PYTHON = ("PYTHON", "LANG", "LC_", "TZ")
"""How the names of variables begin that Python reads as it starts."""

_execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Order:
    """A program to run; its standard input, output and errors come with it."""

    argv: list[str]
    folder: str
    env: dict[str, str]
    new_session: bool
    group: int


class Prepared:
    """The process that forks, as seen by whoever asks it to; it is started when that is first done."""

    def __init__(self) -> None:
        self._link: socket.socket | None = None
        self._lock = threading.Lock()
        self._env = read_by_python(dict(os.environ))
        self._libc = ctypes.CDLL(None, use_errno=True)

    def fits(self, args: object, env: dict[str, str] | None) -> bool:
        """Whether it can run this."""
        known = {(sys.executable, "-m", program) for program in PROGRAMS}
        named = isinstance(args, list | tuple) and tuple(args[:3]) in known
        return named and read_by_python(dict(os.environ) if env is None else env) == self._env

    def start(self, order: Order, pipes: list[int]) -> int:
        """Run it; the id of the process."""
        with self._lock:
            link = self._link = self._link or self._started()
            # While this holds, a process whose parent ends is given to this one: that is how it becomes its child.
            self._adopt(True)
            try:
                socket.send_fds(link, [pickle.dumps(order)], pipes)
                return int(link.recv(32))
            finally:
                self._adopt(False)

    def _started(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        ours.settimeout(60.0)

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        return ours

    def _adopt(self, on: bool) -> None:
        assert self._libc.prctl(SUBREAPER, int(on), 0, 0, 0) == 0, os.strerror(ctypes.get_errno())


def read_by_python(env: dict[str, str]) -> dict[str, str]:
    """What Python reads of an environment as it starts."""
    return {key: value for key, value in env.items() if key.startswith(READ_BY_PYTHON)}


def install() -> None:
    """Let `subprocess` use it from now on, in this process."""
    prepared = Prepared()

    def execute(self: Any, *given: Any) -> None:
        args, executable, before, _, fds, cwd, env, _, _, shell, *pipes = given[:16]
        _, *user_and_mask, new_session, group = given[16:]
        plain = not (executable or before or fds or shell) and user_and_mask == [None, None, None, -1]
        if not plain or not prepared.fits(args, env):
            _execute(self, *given)
            return
        folder, environ = os.fspath(cwd) if cwd else os.getcwd(), dict(os.environ) if env is None else env
        order = Order([os.fspath(word) for word in args[2:]], folder, environ, new_session, group)
        ends = (pipes[0], pipes[3], pipes[5])
        self.pid = prepared.start(order, [end if end >= 0 else number for number, end in enumerate(ends)])
        self._child_created = True
        self._close_pipe_fds(*pipes)

    subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]


def serve(link: socket.socket) -> tuple[Order, list[int]]:
    """Fork for every order. Returns in the child, with what it has to run."""
    while True:
        said, pipes, _, _ = socket.recv_fds(link, MOST, 3)
        if not said:
            # Whoever asked is gone.
            os._exit(0)
        hears, tells = os.pipe()
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            for each in (hears, tells, *pipes):
                os.close(each)
            continue
        if os.fork():
            # With its end the child gets another parent: whoever asked.
            os._exit(0)
        os.close(tells)
        os.read(hears, 1)
        os.close(hears)
        link.send(str(os.getpid()).encode())
        link.close()
        return pickle.loads(said), pipes


def become(order: Order, pipes: list[int]) -> str:
    """Be as if executed; the module to run."""
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
    for pipe in pipes:
        if pipe > 2:
            os.close(pipe)
    if order.new_session:
        os.setsid()
    elif order.group >= 0:
        os.setpgid(0, order.group)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.env)
    sys.path[0] = order.folder
    sys.argv = order.argv
    if sys.stdout.isatty():
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    module = order.argv[0]
    sys.modules.pop(module, None)
    return module


def main() -> None:
    """Read what is read by all, then fork whenever it is asked for."""
    link = socket.socket(fileno=int(sys.argv[1]))
    for module in (*PROGRAMS, *READ):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    module = become(*serve(link))
    try:
        runpy._run_module_as_main(module)  # type: ignore[attr-defined]
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        leave(end.code or 0)
    leave(0)


def leave(code: int) -> NoReturn:
    """End as Python does, but give back no memory: each page of it would have to be copied for that."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)
    # What cannot be written has a code of its own, which Python knows.
    sys.exit(code)


if __name__ == "__main__":
    main()
