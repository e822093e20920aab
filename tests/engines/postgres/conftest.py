"""One server for all tests of this folder, a schema of its own for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.verify.servers.postgres import QUICK, PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(QUICK) as server:
        yield server


@pytest.fixture
def schema() -> str:
    return f"faults_{next(_numbers)}"


@pytest.fixture
def url(server: PostgresServer, schema: str) -> str:
    """Where nobody has been before."""
    return f"{server.url}?schema={schema}"


@pytest.fixture
def connect(url: str) -> Iterator[Callable[..., holdfast.Client]]:
    """Makes clients, which are closed at the end."""
    with ExitStack() as stack:

        def make(**settings: Any) -> holdfast.Client:
            return stack.enter_context(holdfast.connect(settings.pop("url", url), **settings))

        yield make


@pytest.fixture
def database(server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """An administrator's connection."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection
