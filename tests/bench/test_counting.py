"""Requests are counted around the client, and the keeper's with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.bench.ours import OurConnection
from holdfast.bench.subject import Where


@pytest.fixture
def connection() -> Iterator[OurConnection]:
    connection = OurConnection(Where("memory://bench-counting", "", "bench", 10.0))
    yield connection
    connection.close()


def test_an_uncontended_pair_is_two_requests(connection: OurConnection) -> None:
    taker = connection.taker("k")
    taker.acquire()
    taker.release()
    before = connection.requests()

    taker.acquire()
    taker.release()

    assert connection.requests() == before + 2


def test_the_keepers_own_requests_count_too(connection: OurConnection) -> None:
    taker = connection.taker("k")

    taker.acquire()

    # The claim, and before it the session, which the keeper opens.
    assert connection.requests() == 2
    taker.release()
