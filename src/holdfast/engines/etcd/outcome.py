"""The outcome of a verb: "not done" only if none of its calls can have changed anything in etcd.

A verb may make several calls. The first can be applied and the second never sent, so no single call
knows the outcome of the verb. Every verb makes one `VerbCall`, every call goes through it, and the
error that the caller gets takes its outcome from there.
"""

from __future__ import annotations

from holdfast.engines.etcd.wire import Answer, Crowded, Full, Request
from holdfast.errors import EngineFailure
from holdfast.runtime.io import Io


class VerbCall:
    """One call of a verb: its deadline, and whether one of its requests may have changed something."""

    __slots__ = ("changed", "crowded", "full", "unanswered", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.changed = False
        """Whether a request that can change something was sent, and no answer proves that it changed nothing."""
        self.unanswered = False
        """Whether a try of such a request was not answered: it may still be applied."""
        self.full = False
        """Whether etcd refused the last request for lack of space."""

        self.crowded = False
        """Whether the last request was not sent in time, because other requests of this client went first."""

    async def send(self, io: Io, request: Request) -> Answer:
        """Send a request; EngineUnavailable has the outcome of the whole verb."""
        try:
            answer: Answer = await io.call(request, self.until)
        except EngineFailure as error:
            self.full, self.crowded = isinstance(error, Full), isinstance(error, Crowded)
            if request.changes and error.outcome == "unknown":
                self.changed = True
                self.unanswered = self.unanswered or not isinstance(error, Full) or error.repeated
            raise self.failure(error) from error
        if request.changes:
            self.changed = True
            self.unanswered = self.unanswered or answer.repeated
        return answer

    @property
    def settled(self) -> bool:
        """Whether etcd has refused the verb for lack of space, and nothing of it can be applied any more.

        What was refused may have been applied before; a read tells.
        """
        return self.full and not self.unanswered

    def refused(self, error: EngineFailure) -> EngineFailure:
        """The same error, after an answer has proved that nothing of this verb is kept in etcd."""
        self.changed = False
        return self.failure(error)

    def failure(self, error: EngineFailure) -> EngineFailure:
        """The error of one call, as the error of the verb."""
        return EngineFailure(error.engine, error.problem, "unknown" if self.changed else "not done")
