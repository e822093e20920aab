"""Waiters of one client that leave one queue: their nodes are removed together.

The first one is sent at once. Those that come while a transaction is under way go together in the next one. All of
this is decided in the connection's thread, which no signal handler interrupts: a caller that is interrupted or
cancelled keeps no other one waiting, and its own claim is removed all the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kazoo.protocol.serialization import Delete, SetData, Transaction

from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.asking import ANSWERS
from holdfast.engines.zookeeper.connection import Message
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.node_data import packed

MOST_TOGETHER = 300
"""Claims that leave a queue in one transaction."""
MOST_BYTES = 50_000
"""What they take in it: a twentieth of the default `jute.maxbuffer`."""
A_CLAIM = 64
"""At most what a claim takes in a transaction beside its path and its id, in bytes."""


class Withdrawal:
    """A claim that leaves, and the answers that its callers wait for."""

    __slots__ = ("answers", "path", "record", "size")

    def __init__(self, path: str, record: dict[str, Any]) -> None:
        self.path, self.record = path, record
        self.size = len(path) + sum(map(len, record)) + A_CLAIM
        self.answers: list[Answer] = []


class Withdrawals:
    """Those of one queue. All but `send` runs in the connection's thread."""

    def __init__(self, link: Link, parent: str) -> None:
        self._link, self._parent = link, parent
        self._waiting: dict[str, Withdrawal] = {}
        """By path: what goes with the next transaction."""
        self._sent: dict[str, Withdrawal] = {}
        """By path: what was sent and is not answered."""

    def send(self, path: str, record: dict[str, Any]) -> Answer:
        """Have a node removed, with this record of its removal. The answer is a list: what was refused."""
        answer = Answer()
        self._link.kazoo.call_in_turn(partial(self._take, Withdrawal(path, record)), answer)
        return answer

    def _take(self, withdrawal: Withdrawal, answer: Answer) -> None:
        # A caller that had no answer in time asks again. Twice in one transaction, the node would undo all of it.
        path = withdrawal.path
        there = self._sent.get(path) or self._waiting.setdefault(path, withdrawal)
        there.answers.append(answer)
        self._go_on()

    def _go_on(self) -> None:
        """Send what waits, unless something is under way."""
        if self._sent or not self._waiting:
            return
        size = 0
        for withdrawal in self._waiting.values():
            size += withdrawal.size
            if self._sent and (size > MOST_BYTES or len(self._sent) == MOST_TOGETHER):
                break
            self._sent[withdrawal.path] = withdrawal
        for path in self._sent:
            del self._waiting[path]
        self._remove(list(self._sent.values()))

    def _remove(self, together: list[Withdrawal]) -> None:
        record: dict[str, Any] = {}
        for each in together:
            record |= each.record
        answer = Answer()
        answer.rawlink(partial(self._answered, together))
        deletions = [Delete(each.path, -1) for each in together]
        self._link.kazoo.send(Message(Transaction([SetData(self._parent, packed(record), -1), *deletions])), answer)

    def _answered(self, together: list[Withdrawal], answer: Answer) -> None:
        """A transaction is over. One node that was gone already has undone all of it: then each goes by itself."""
        lost = answer.exception
        refusals = [one for one in answer.value or () if isinstance(one, Exception)]
        if len(together) > 1 and (refusals or isinstance(lost, ANSWERS)):
            for each in together:
                self._remove([each])
            return
        for each in together:
            del self._sent[each.path]
        if lost is not None:
            # With the connection. What waits is told too: nothing can be sent now.
            together = [*together, *self._waiting.values()]
            self._waiting = {}
        for asked in (asked for each in together for asked in each.answers):
            if lost is not None:
                asked.set_exception(lost)
            else:
                asked.set(refusals)
        self._go_on()
