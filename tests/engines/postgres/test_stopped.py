"""Processes that stop in the middle of something."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.core import names
from holdfast.verify.servers.postgres import PostgresServer
from tests.engines.postgres.patience import eventually

Connect = Callable[..., holdfast.Client]

WAITING = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"


def test_a_backend_that_is_stopped_inside_a_transaction_keeps_its_bucket_only_and_leaves_nothing_behind(
    url: str, connect: Connect, database: psycopg.Connection[Any], server: PostgresServer, schema: str
) -> None:
    assert names.bucket("k") != names.bucket("other")
    locks, rival = connect(url=f"{url}&application_name={schema}", ttl=60), connect(ttl=60)
    rival.list()
    ended: list[BaseException] = []

    def take() -> None:
        try:
            locks.lock("k").acquire(wait=1.0)
        except holdfast.HoldfastError as error:
            ended.append(error)

    with psycopg.connect(server.url) as blocking:
        # Where it cannot go on: it has locked its bucket, and waits for the counter.
        sql = f"SELECT FROM {schema}.counters WHERE bucket = {names.bucket('k')} FOR UPDATE"
        blocking.execute(sql.encode())
        caller = threading.Thread(target=take)
        caller.start()
        eventually(lambda: database.execute(WAITING, (schema,)).fetchone(), within=60)
        (stopped,) = database.execute(WAITING, (schema,)).fetchone() or (0,)
        os.kill(stopped, signal.SIGSTOP)
        blocking.rollback()
    try:
        with pytest.raises(holdfast.EngineUnavailable):
            rival.lock("k").try_acquire()
        rival.lock("other").acquire(wait=60.0).release()
        caller.join()
    finally:
        os.kill(stopped, signal.SIGCONT)

    assert isinstance(ended[0], holdfast.EngineUnavailable)
    assert ended[0].outcome == "unknown"
    eventually(lambda: is_free(rival), within=60)


def is_free(rival: holdfast.Client) -> bool:
    try:
        info = rival.inspect("k")
    except holdfast.EngineUnavailable:
        return False
    return info.holders == info.waiters == ()
