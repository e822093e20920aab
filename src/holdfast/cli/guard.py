"""The guard: a small process between `holdfast run` and CMD that stops CMD before the lock can be lost.

`holdfast run` tells it until when the grant is good; the guard knows nothing of engines. It
sends SIGTERM to CMD's process group `grace` seconds before that moment, and SIGKILL when a
fifth of the grace is left, so CMD has ended when somebody else can get the lock. Because it
keeps time by itself, that also holds when `holdfast run` is stopped, hangs, or is killed.

Messages are JSON, one a line, over a socket. To the guard: `start` (env, grace, until),
`until` (at), `signal` (number), `lost`, `resume`. From it: `started` (pid), `failed` (errno),
`stopping`, `suspended` (wants_terminal), `ended` (status, stopped).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from holdfast.cli import processes, spawn, terminal
from holdfast.runtime import clock

KILL_SHARE = 0.2
"""Which part of the grace is left when SIGTERM is followed by SIGKILL."""
NAP = 0.5
"""How long it sleeps at most: a timer does not count the time while the machine is suspended, its clock does."""
CLEARING = 0.03
"""How often to look whether the rest of CMD's group has ended. A look reads the table of all processes."""
AFTER_KILL = 1.0
"""How long to wait for the kernel to clear away a group that was killed."""

PASSED_ON = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGWINCH, signal.SIGCONT,
)  # fmt: skip
"""Signals that `holdfast run` hands to CMD's process group."""
DEAF_TO = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGALRM,
)  # fmt: skip
"""Signals that must not end or stop the guard."""


class Guard:
    """The state of one guard: at most one CMD at a time, several one after the other."""

    def __init__(self, wire: socket.socket, argv: Sequence[str], home: int) -> None:
        self.wire, self.argv, self.home = wire, argv, home
        self.text = b""
        self.tie = spawn.die_with_parent()
        spawn.adopt_orphans()
        self.defaults = [number for number in DEAF_TO if signal.getsignal(number) is not signal.SIG_IGN]
        self.tty = terminal.open_terminal()
        self.orphaned_at: float | None = None
        self.alarm, bell = os.pipe()
        os.set_blocking(self.alarm, False)
        os.set_blocking(bell, False)
        signal.set_wakeup_fd(bell)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in DEAF_TO:
            signal.signal(number, signal.SIG_IGN)
        self.forget()

    def forget(self) -> None:
        """No CMD is running."""
        self.group = 0
        self.status: int | None = None
        self.until, self.grace = float("inf"), 0.0
        self.stopping = self.lost = self.has_terminal = False
        self.killed_at: float | None = None

    def serve(self) -> None:
        """Guard until `holdfast run` is gone and nothing of CMD is left."""
        while True:
            watched = [self.alarm] if self.orphaned_at is not None else [self.alarm, self.wire.fileno()]
            ready, _, _ = select.select(watched, [], [], self.nap())
            if self.alarm in ready:
                os.read(self.alarm, 4096)
            if self.wire.fileno() in ready:
                self.listen()
            self.reap()
            if self.group:
                self.enforce()
                self.conclude()
            if self.orphaned_at is not None and not self.group:
                return

    def nap(self) -> float | None:
        """How long to sleep."""
        if not self.group:
            return None
        if self.status is not None:
            return CLEARING
        if self.killed_at is not None:
            return 0.01
        due = self.kill_at() if self.stopping else self.until - self.grace
        return min(NAP, max(0.0, due - clock.now()))

    def listen(self) -> None:
        """Take what `holdfast run` has to say; its end is a message too."""
        try:
            got = self.wire.recv(65536)
        except ConnectionError:
            got = b""
        if not got:
            self.orphaned_at = clock.now()
            return
        *lines, self.text = (self.text + got).split(b"\n")
        for line in lines:
            self.obey(json.loads(line))

    def say(self, what: str, **facts: object) -> None:
        """Tell `holdfast run`; if it is gone there is nobody to tell."""
        try:
            self.wire.sendall(json.dumps({"what": what, **facts}).encode() + b"\n")
        except OSError:
            self.orphaned_at = self.orphaned_at or clock.now()

    def obey(self, message: dict[str, Any]) -> None:
        match message["do"]:
            case "start":
                self.start(message)
            case "until":
                self.until = message["at"]
            case "signal" if self.group and self.status is None:
                self.send(message["number"])
            case "lost":
                self.lost = True
            case "resume" if self.group:
                self.bring_to_front()

    def start(self, message: dict[str, Any]) -> None:
        """Start CMD, and give it the terminal if `holdfast run` has it."""
        self.forget()
        self.until, self.grace = message["until"], message["grace"]
        if clock.now() >= self.until - self.grace:
            self.say("ended", status=0, stopped=True)
            return
        self.has_terminal = terminal.foreground_of(self.tty) == self.home
        tty = self.tty if self.has_terminal else None
        merged = {**os.environ, **message["env"]}
        env = {key: value for key, value in merged.items() if value is not None}
        try:
            self.group = spawn.spawn(self.argv, env, self.defaults, tty, self.tie)
        except spawn.NotStarted as error:
            self.take_terminal(error.pid)
            self.say("failed", errno=error.errno)
            return
        self.say("started", pid=self.group)

    def send(self, number: int) -> None:
        """A signal for the whole process group, if there still is one."""
        try:
            os.killpg(self.group, number)
        except (ProcessLookupError, PermissionError):
            return

    def reap(self) -> None:
        """See whether CMD has ended, or was suspended from the terminal; clear away what it left as zombies."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid != self.group or self.status is not None:
                continue
            if not os.WIFSTOPPED(status):
                self.status = status
            elif not self.stopping and self.tty is not None:
                self.suspended(os.WSTOPSIG(status))

    def suspended(self, number: int) -> None:
        """CMD was stopped on account of the terminal. One that was stopped by SIGSTOP keeps its lock."""
        wants_terminal = number in (signal.SIGTTIN, signal.SIGTTOU)
        if wants_terminal and terminal.foreground_of(self.tty) == self.home:
            # The job was brought to the foreground after its start.
            self.bring_to_front()
        elif wants_terminal or number == signal.SIGTSTP:
            self.take_terminal(self.group)
            self.say("suspended", wants_terminal=wants_terminal)

    def bring_to_front(self) -> None:
        """Let CMD go on, with the terminal if `holdfast run` has it."""
        self.has_terminal = terminal.foreground_of(self.tty) == self.home
        if self.has_terminal:
            terminal.give(self.tty, self.group)
        self.send(signal.SIGCONT)

    def kill_at(self) -> float:
        """When SIGTERM has had its time."""
        at = self.until - self.grace * KILL_SHARE
        return at if self.orphaned_at is None else min(at, self.orphaned_at + self.grace)

    def enforce(self) -> None:
        """Stop CMD in time."""
        now = clock.now()
        in_danger = self.lost or self.orphaned_at is not None or now >= self.until - self.grace
        if in_danger and not self.stopping and self.status is None:
            self.stopping = True
            self.say("stopping")
            self.send(signal.SIGTERM)
            # One that is suspended could not hear it otherwise.
            self.send(signal.SIGCONT)
        if self.stopping and self.killed_at is None and (self.lost or now >= self.kill_at()):
            self.killed_at = now
            self.send(signal.SIGKILL)

    def conclude(self) -> None:
        """Report CMD's end. One that was stopped has ended when its whole group has."""
        if self.status is None:
            return
        cleared = self.killed_at is not None and clock.now() >= self.killed_at + AFTER_KILL
        if self.stopping and not cleared and not processes.is_empty(self.group):
            return
        self.take_terminal(self.group)
        status, stopped = self.status, self.stopping
        self.group = 0
        self.say("ended", status=status, stopped=stopped)

    def take_terminal(self, group: int) -> None:
        """Give the terminal back to the group of `holdfast run`, if CMD has it.

        While the job is suspended the shell has it, or another job of the shell.
        """
        if self.has_terminal and self.is_of_command(terminal.foreground_of(self.tty), group):
            terminal.give(self.tty, self.home)

    def is_of_command(self, foreground: int | None, group: int) -> bool:
        """Whether a group is CMD's, is one that CMD made, such as a job of a shell, or has ended."""
        if foreground is None or foreground == self.home:
            return False
        if foreground == group or processes.is_empty(foreground):
            return True
        return any(processes.descends_from(member, os.getpid()) for member in processes.members(foreground))


def fork_guard(argv: Sequence[str]) -> tuple[socket.socket, int]:
    """Start a guard; the way to it, and its pid. Called before this process has a second thread."""
    here, there = socket.socketpair()
    home = os.getpgrp()
    pid = os.fork()
    if pid:
        there.close()
        return here, pid
    code = 1
    try:
        here.close()
        # A signal for the whole group of `holdfast run` is not for the guard, not even SIGKILL.
        os.setpgid(0, 0)
        Guard(there, argv, home).serve()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may return into the code of the parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
