"""CMD, as `holdfast run` and `holdfast elect` see it: run under a grant, by a guard."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import holdfast
from holdfast.cli import exit_codes, terminal
from holdfast.cli.guard import PASSED_ON, fork_guard
from holdfast.errors import HoldfastError
from holdfast.runtime import clock

GRACE_SHARE = 0.25
"""Which part of the ttl is CMD's to end by itself after SIGTERM, unless told."""
LONGEST_GRACE_SHARE = 0.4
"""More would stop CMD although the engine answers: a third of the ttl may pass between two heartbeats."""
GUARD_TIME = 3.0
"""How long the guard may take to report the end of a CMD that was killed."""
LAST_MOMENT = 0.1
"""Which part of the grace is left when the guard has failed, and CMD is killed without it."""


@dataclass(frozen=True)
class Ending:
    """How CMD ended."""

    exit_code: int
    stopped: bool = False
    """Whether it was stopped because its grant was in danger or lost."""
    by_key: int = 0
    """The signal that it died of, if that came from the terminal's keyboard."""
    problem: str = ""


class Command:
    """Runs CMD while a grant is good, as often as it is asked to."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = argv
        self.wire, self.guard = fork_guard(argv)
        self.wire.setblocking(False)
        self.text = b""
        self.pid = 0
        self.alarm, self.bell = os.pipe()
        os.set_blocking(self.alarm, False)
        os.set_blocking(self.bell, False)
        self.caught: list[int] = []
        self.grant: holdfast.Grant | None = None
        self.is_lost = False
        self.grace = 0.0
        self.killed_at: float | None = None
        self.over = threading.Event()

    def close(self) -> None:
        """Let the guard go. It ends when nothing of CMD is left; one that does not end in time is killed."""
        if self.wire.fileno() < 0:
            return
        self.wire.close()
        until = clock.now() + self.grace + GUARD_TIME
        while not os.waitpid(self.guard, os.WNOHANG)[0]:
            if clock.now() > until:
                os.kill(self.guard, signal.SIGKILL)
            time.sleep(0.001)
        os.close(self.alarm)
        os.close(self.bell)

    def lost(self, grant: holdfast.Grant) -> None:
        """The grant is lost: CMD is killed, if it runs under this one. May be called by any thread.

        Returns when CMD has ended: a lock that was broken is given back only after this.
        """
        if grant is self.grant:
            self.is_lost = True
            with contextlib.suppress(BlockingIOError):
                os.write(self.bell, b"!")
            self.over.wait(self.grace + GUARD_TIME)

    def run(
        self,
        grant: holdfast.Grant,
        env: Mapping[str, str | None],
        ttl: float,
        grace: float,
        on_stopping: Callable[[], object],
    ) -> Ending:
        """Run CMD to its end, or until the grant is in danger. A variable that is None is not in its environment."""
        # A grant that is lost before this line has nothing remaining, and the guard starts nothing.
        self.pid, self.is_lost, self.killed_at, self.grace, self.grant = 0, False, None, grace, grant
        self.over.clear()
        interval = min(1.0, max(0.01, ttl / 12))
        # Signals are CMD's from before its start: one that ended this process here would leave it alone.
        with Passing(self):
            try:
                self.say("start", env=dict(env), grace=grace, until=clock.now() + grant.remaining)
                return self.follow(grant, interval, Once(on_stopping))
            except BaseException:
                # Whatever it is, CMD has ended before the lock is given back.
                self.close()
                raise
            finally:
                self.grant = None
                self.over.set()

    def follow(self, grant: holdfast.Grant, interval: float, on_stopping: Callable[[], object]) -> Ending:
        """Keep the guard up to date until CMD has ended."""
        while True:
            last_moment = grant.remaining - self.grace * LAST_MOMENT
            select.select([self.wire.fileno(), self.alarm], [], [], min(interval, max(0.005, last_moment)))
            self.pass_on(grant)
            if self.killed_at is not None:
                on_stopping()
            for message in self.hear():
                if message["what"] == "suspended":
                    self.suspend(grant, message["wants_terminal"])
                elif message["what"] == "stopping":
                    on_stopping()
                ending = self.ending(message)
                if ending is not None:
                    return ending

    def pass_on(self, grant: holdfast.Grant) -> None:
        """Tell the guard what has changed: signals, the deadline, the loss."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.alarm, 4096)
        while self.caught:
            self.say("signal", number=self.caught.pop(0))
        # The clock first: a pause between the two makes it earlier, never later.
        now = clock.now()
        remaining = grant.remaining
        self.say("until", at=now + remaining)
        if self.is_lost:
            self.is_lost = False
            self.say("lost")
        if self.pid and remaining <= self.grace * LAST_MOMENT:
            self.kill_without_guard()

    def kill_without_guard(self) -> None:
        """The guard should have done it by now. If it does not even say so soon, it is killed too."""
        kill_group(self.pid)
        self.killed_at = self.killed_at or clock.now()
        if clock.now() > self.killed_at + GUARD_TIME:
            os.kill(self.guard, signal.SIGKILL)

    def say(self, what: str, **facts: object) -> None:
        """Tell the guard. A guard that does not listen is not waited for: `ending` and `pass_on` see to it."""
        try:
            self.wire.send(json.dumps({"do": what, **facts}).encode() + b"\n")
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            return

    def hear(self) -> list[dict[str, Any]]:
        """What the guard says; that it is gone, if it is."""
        try:
            got = self.wire.recv(65536)
        except BlockingIOError:
            return []
        except ConnectionError:
            got = b""
        if not got:
            return [{"what": "gone"}]
        *lines, self.text = (self.text + got).split(b"\n")
        return [json.loads(line) for line in lines]

    def ending(self, message: dict[str, Any]) -> Ending | None:
        """The end that a message tells of, if it does."""
        match message["what"]:
            case "started":
                self.pid = message["pid"]
            case "failed":
                missing = message["errno"] in (errno.ENOENT, errno.ENOTDIR)
                code = exit_codes.NOT_FOUND if missing else exit_codes.NOT_EXECUTABLE
                problem = "command not found" if missing else os.strerror(message["errno"]).lower()
                if missing and len(self.argv) == 1 and " " in self.argv[0]:
                    problem += "; a line for a shell is run by: sh -c '…'"
                return Ending(code, problem=f"{self.argv[0]}: {problem}")
            case "gone":
                if self.pid:
                    kill_group(self.pid)
                return Ending(exit_codes.LOST, stopped=True, problem="the guard was killed, so CMD was too")
            case "ended":
                return self.ended(message["status"], message["stopped"])
        return None

    def ended(self, status: int, stopped: bool) -> Ending:
        # The guard may hear of CMD's end before it hears that the grant is lost.
        if stopped or self.killed_at is not None:
            return Ending(exit_codes.LOST, stopped=True)
        if not os.WIFSIGNALED(status):
            return Ending(os.WEXITSTATUS(status))
        number = os.WTERMSIG(status)
        by_key = number in (signal.SIGINT, signal.SIGQUIT) and terminal.is_ours()
        return Ending(exit_codes.for_signal(number), by_key=number if by_key else 0)

    def suspend(self, grant: holdfast.Grant, wants_terminal: bool) -> None:
        """CMD was suspended by Ctrl-Z: so are we, like any job. Going on needs a grant that is still good."""
        # The job may have been brought to the foreground since CMD was stopped for reading in the background.
        if not (wants_terminal and terminal.is_ours()):
            os.killpg(0, signal.SIGSTOP)
        try:
            grant.renew()
        except HoldfastError:
            # In danger or lost: the guard has the deadline and decides, and the loss was told to `lost`.
            self.say("until", at=clock.now() + grant.remaining)
        else:
            self.say("until", at=clock.now() + grant.remaining)
        self.say("resume" if grant.valid else "lost")


class Once:
    """Calls a function the first time that it is called itself."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function: Callable[[], object] | None = function

    def __call__(self) -> None:
        function, self.function = self.function, None
        if function is not None:
            function()


class Passing:
    """While CMD runs, signals for us are for it. Those that were ignored stay so, as nohup wants it."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.before: dict[int, Any] = {}
        self.wakeup = -1

    def __enter__(self) -> None:
        self.wakeup = signal.set_wakeup_fd(self.command.bell)
        for number in PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self.before[number] = signal.signal(number, self.catch)

    def catch(self, number: int, _: FrameType | None) -> None:
        self.command.caught.append(number)

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self.wakeup)


def kill_group(group: int) -> None:
    """Kill CMD without the guard."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def die_of(number: int) -> None:
    """End as the terminal's key would have ended this process group, had CMD not had a group of its own.

    A shell script stops at Ctrl-C only if it gets the signal too.
    """
    signal.signal(number, signal.SIG_DFL)
    os.killpg(0, number)
