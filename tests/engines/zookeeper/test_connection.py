"""One connection that many ask at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.core import urls
from holdfast.engines.zookeeper.address import parse_address
from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.link import Batch, Link
from tests.engines.zookeeper.patience import PATIENCE, eventually

THREADS, QUESTIONS = 8, 150


@pytest.fixture
def link(url: str) -> Iterator[Link]:
    """A connection of its own, and a node to work under."""
    link = Link(parse_address(urls.parse(url)), 10.0, beats=False)
    link.start()
    eventually(lambda: link.connected, "a connection")
    yield link
    link.say_farewell()
    eventually(lambda: link.over is not None, "the end of the connection")


def taken(answer: Answer) -> Any:
    """What is answered, once it is."""
    there = threading.Event()
    Batch([answer], there.set)
    assert there.wait(PATIENCE), "no answer came"
    return answer.get()


def test_each_of_many_threads_has_its_own_answers(link: Link, chroot: str) -> None:
    taken(link.kazoo.create_async(chroot))

    def ask(thread: int) -> None:
        path = f"{chroot}/{thread}"
        taken(link.kazoo.create_async(path, b"0"))
        for number in range(QUESTIONS):
            data = f"{thread} {number}".encode()
            link.kazoo.set_async(path, data)
            found, stat = taken(link.kazoo.get_async(path))
            assert (found, stat.version) == (data, number + 1)

    with ThreadPoolExecutor(THREADS) as threads:
        assert len(list(threads.map(ask, range(THREADS)))) == THREADS


def test_what_is_asked_in_the_connections_own_thread_is_answered(link: Link) -> None:
    answers: list[Answer] = []

    def ask_again(_: Answer) -> None:
        answers.append(link.kazoo.exists_async("/"))

    link.kazoo.exists_async("/").rawlink(ask_again)
    eventually(lambda: answers and answers[0].ready(), "the second answer")


def test_a_link_that_is_closed_while_it_connects_leaves_no_thread_behind(url: str) -> None:
    link = Link(parse_address(urls.parse(url)), 10.0, beats=False)
    dial = link.kazoo.handler.create_connection

    def close_meanwhile(*args: Any, **options: Any) -> Any:
        made = dial(*args, **options)
        link.close()
        return made

    link.kazoo.handler.create_connection = close_meanwhile
    link.start()

    eventually(link.kazoo._connection.connection_stopped.is_set, "the end of its thread")


def test_a_request_that_cannot_be_written_fails_who_asked_and_nobody_else(link: Link) -> None:
    with pytest.raises(UnicodeEncodeError):
        link.kazoo.exists_async("/\ud800")

    assert taken(link.kazoo.exists_async("/")) is not None
    assert link.connected
