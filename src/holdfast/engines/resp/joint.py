"""Requests of concurrent tasks that go as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from hiredis import ProtocolError, ReplyError

from holdfast.engines.resp.wire import NOT_DONE, Lost, Part, Request, Script, pack
from holdfast.runtime import clock
from holdfast.runtime.asyncio import go_on

APART = None
"""The answer to a request that the script has left alone: it has to be sent by itself."""


R = TypeVar("R")
G = TypeVar("G", bound=Hashable)


class Joint(ABC, Generic[R, G]):
    """Several requests of one turn of the loop, sent as one, and who waits for their answers."""

    __slots__ = ("group", "parts", "until")

    def __init__(self, group: G) -> None:
        self.group = group
        self.parts: list[tuple[R, float, Future[Any]]] = []
        """Each request, until when it waits, and its answer. One is added by one step."""
        self.until = 0.0

    @property
    def requests(self) -> list[R]:
        """The requests."""
        return [request for request, _, _ in self.parts]

    def entry(self) -> tuple[bytes, Joint[R, G] | Future[Any], float]:
        """What is sent now, who takes the reply, and until when; nothing joins them any more."""
        if not self.parts:
            return b"", self, 0.0
        if len(self.parts) == 1:
            ((_, until, future),) = self.parts
            return self.alone(), future, until
        # As soon as the first of them has no time left: it is told, and the others go on waiting.
        self.until = min([until for _, until, _ in self.parts])
        return self.as_one(), self, self.until

    @abstractmethod
    def as_one(self) -> bytes:
        """All of them as one command."""

    @abstractmethod
    def alone(self) -> bytes:
        """The only one as it is sent by itself."""

    # As one who takes a reply

    def done(self) -> bool:
        """Whether nobody waits any more."""
        return all(future.done() for _, _, future in self.parts)

    @abstractmethod
    def set_result(self, reply: Any, /) -> None:
        """Give each its own part of the answer."""

    def give(self, answers: list[Any]) -> None:
        """Give each its answer. What an error means is for each to find out by itself."""
        if not isinstance(answers, list) or len(answers) != len(self.parts):
            # Nobody knows whose these are. Whoever reads the replies ends the connection.
            self.set_exception(Lost("the server sent something else than the replies that were asked for"))
            raise ProtocolError(f"{len(self.parts)} requests were answered {answers!r:.100}")
        pairs = zip([future for _, _, future in self.parts], answers, strict=True)
        try:
            go_on(pairs)
        finally:
            # There are some left if one that went on was interrupted.
            for future, answer in pairs:
                if not future.done():
                    future.set_result(answer)

    def set_exception(self, error: Lost, /) -> None:
        """Tell all of them; only those whose time is over, if that is what there is to tell."""
        now = clock.now()
        for _, until, future in self.parts:
            if not future.done() and (until <= now or not error.silent):
                future.set_exception(Lost(error.problem, sent=error.sent, silent=error.silent))


class ScriptJoint(Joint[Request, str]):
    """Calls that one script of Redis carries out together.

    A script is called, its arguments are read and its answer is written once for all of them:
    that is more than half of what a plain step costs the server.
    """

    __slots__ = ("_again", "_script")

    def __init__(self, script: Script, group: str, again: Callable[[ScriptJoint, bytes], None]) -> None:
        super().__init__(group)
        self._script = script
        self._again = again
        """Sends it once more, in full."""

    def as_one(self) -> bytes:
        return pack((*self._script.start, *self._arguments()))

    def alone(self) -> bytes:
        return self.parts[0][0].packed(False)

    def packed_in_full(self) -> bytes:
        """The same for a server that does not know the script (any more)."""
        return pack(("EVAL", self._script.text, *self._arguments()))

    def _arguments(self) -> tuple[Part, ...]:
        requests = self.requests
        takes = sum([request.form.joins.takes for request in requests if request.form.joins is not None])
        own = "".join([request.own for request in requests])
        return ("1", requests[0].form.prefix, self.group, f"{takes}", own)

    def set_result(self, reply: Any, /) -> None:
        """Give each its own part of the answer."""
        answers: list[Any] = reply
        if isinstance(reply, ReplyError):
            if str(reply).startswith("NOSCRIPT"):
                self._again(self, self.packed_in_full())
                return
            if not str(reply).startswith(NOT_DONE):
                self.set_exception(Lost(str(reply)))
                return
            answers = []
        self.give(answers or [APART] * len(self.parts))
