"""One connection for many threads: nobody is ever given the reply to another's request."""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.engines.holdfast.line import Line, Waiter
from holdfast.engines.holdfast.route import Route
from holdfast.engines.resp.wire import Address, Lost
from holdfast.runtime import clock
from holdfast.runtime.blocking import ThreadSignal
from tests.servers.lock_server import LockServer


class Meanwhile(ThreadSignal):
    """Something that another thread does just when this one is told."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens = happens

    def set(self) -> None:
        first = not self.is_set()
        super().set()
        if first:
            self._happens()


def open_line(server: LockServer) -> Line:
    address = Address("127.0.0.1", server.port)
    return Line(address, Route((address,), durable=False), lambda push: None, clock.now() + 10.0)


def test_replies_that_arrive_while_the_line_ends_are_nobody_elses(server: LockServer) -> None:
    line = open_line(server)
    first, second, third = Waiter(), Waiter(), Waiter()
    line._waiting.extend((first, second, third))
    # The reader is in the middle of what came when another thread gives the connection up.
    first.gate = Meanwhile(lambda: line._take(b"+one\r\n+two\r\n"))
    line.end("a test")

    assert isinstance(first.reply, Lost)
    assert second.reply in ("two", b"two")
    assert isinstance(third.reply, Lost)


def test_threads_that_share_a_line_each_get_their_own_replies(server: LockServer) -> None:
    line = open_line(server)
    wrong: list[object] = []

    def ask(who: int) -> None:
        for number in range(50):
            word = f"{who}-{number}".encode()
            reply = line.call(b"*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n" % (len(word), word), clock.now() + 30.0)
            if reply != word:
                wrong.append((word, reply))

    threads = [threading.Thread(target=ask, args=(who,)) for who in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    line.end("a test")

    assert wrong == []
