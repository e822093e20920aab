"""What is known of the commits that a client sent: whether each was applied, and whether its news arrived."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from holdfast.engines.postgres.wire import SqlError, Wire
from holdfast.runtime import clock
from holdfast.runtime.calls import has_ended, running_call


class VerbCall:
    """One call of a verb: its deadline, and whether it may have changed the engine in any of its transactions."""

    __slots__ = ("may_have_changed", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.may_have_changed = False


class Commits:
    """Commits of one client whose effect on the client itself is not known yet.

    The server sends a client no notice of what the client did itself. So the client has to be
    told in another way if an answer is lost, or if an interrupt comes before it was looked at.
    """

    def __init__(self) -> None:
        self.open: set[Commit] = set()
        self.wake: Callable[[], object] = lambda: None
        """Wakes the keeper, which finds out what became of them."""

    def ended(self) -> list[Commit]:
        """Those whose call is over."""
        return [commit for commit in list(self.open) if commit.ended_at is not None or has_ended(commit.call)]


class Commit:
    """One commit: registered before its first byte, until its own notices were delivered or the server refused it."""

    def __init__(self, call: VerbCall, commits: Commits) -> None:
        self._verb, self._commits = call, commits
        self.sent = False
        self.ended_at: float | None = None
        """When its call ended without an answer."""
        self.server_pid = 0
        """The server process that runs it."""
        self.direct = True
        """Whether the connection leads to that process without a pooling proxy."""
        self.told = False
        """Whether the client was told to look since."""
        self._before = False

    def sending(self, wire: Wire) -> None:
        """It is about to be sent."""
        self.call = running_call()
        self.server_pid, self.direct = wire.server_pid, wire.server_pid == wire.backend_pid
        self._before = self._verb.may_have_changed
        self.sent = self._verb.may_have_changed = True
        self._commits.open.add(self)

    def changed_nothing(self) -> None:
        """The server's answer proves that nothing was applied."""
        self._verb.may_have_changed = self._before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        if not self.sent:
            return
        if error is None or isinstance(error, SqlError):
            self._commits.open.discard(self)
            if error is not None:
                self.changed_nothing()
        else:
            self.ended_at = clock.now()
            self._commits.wake()
