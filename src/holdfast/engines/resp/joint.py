"""Requests of concurrent tasks that one script carries out together."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import Any

from hiredis import ReplyError

from holdfast.engines.resp.wire import NOT_DONE, Joins, Lost, Request, pack
from holdfast.runtime import clock
from holdfast.runtime.asyncio import go_on

APART = 0
"""The answer to a request that the script has left alone: it has to be sent by itself."""


class Joint:
    """Several requests of one turn of the loop, sent as one, and who waits for their answers.

    A script is called, its arguments are read and its answer is written once for all of them:
    that is more than half of what a plain step costs the server.
    """

    __slots__ = ("_again", "_joins", "_prefix", "group", "parts", "takes", "until", "waiting")

    def __init__(self, joins: Joins, request: Request, again: Callable[[Joint, bytes], None]) -> None:
        self._joins, self._prefix = joins, request.prefix
        self.group = request.args[joins.group]
        """What all of them have in common."""
        self._again = again
        """Sends it once more, in full."""
        self.parts: list[str] = []
        """What is each one's own, one after the other."""
        self.takes = 0
        """How many tokens they may need."""
        self.waiting: list[tuple[Request, Future[Any], float]] = []
        """Whoever adds one adds to these three."""
        self.until = 0.0

    def packed(self) -> bytes:
        """All of them as one command."""
        # As soon as the first of them has no time left: it is told, and the others go on waiting.
        self.until = min([until for _, _, until in self.waiting])
        return pack((*self._joins.script.start, "1", self._prefix, self.group, f"{self.takes}", "".join(self.parts)))

    def packed_in_full(self) -> bytes:
        """The same for a server that does not know the script (any more)."""
        text = self._joins.script.text
        return pack(("EVAL", text, "1", self._prefix, self.group, f"{self.takes}", "".join(self.parts)))

    # As one who takes a reply

    def done(self) -> bool:
        """Whether nobody waits any more."""
        return all(future.done() for _, future, _ in self.waiting)

    def set_result(self, reply: Any, /) -> None:
        """Give each its own part of the answer. What an error means is for each to find out by itself."""
        answers: list[Any] = reply
        if isinstance(reply, ReplyError):
            if str(reply).startswith("NOSCRIPT"):
                self._again(self, self.packed_in_full())
                return
            if not str(reply).startswith(NOT_DONE):
                self.set_exception(Lost(str(reply)))
                return
            answers = []
        pairs = zip(self.waiting, answers or [APART] * len(self.waiting), strict=True)
        try:
            for (_, future, _), answer in pairs:
                go_on(future, answer)
        finally:
            # There are some left if one that went on was interrupted.
            for (_, future, _), answer in pairs:
                if not future.done():
                    future.set_result(answer)

    def set_exception(self, error: Lost, /) -> None:
        """Tell all of them; only those whose time is over, if that is what there is to tell."""
        now = clock.now()
        for _, future, until in self.waiting:
            if not future.done() and (until <= now or not error.silent):
                future.set_exception(Lost(error.problem, sent=error.sent, silent=error.silent))
