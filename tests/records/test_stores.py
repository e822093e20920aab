"""After one fixed story every store has what was recorded, key by key and row by row.

The story is played in a process of its own, which is stopped before an operator breaks one of its locks and adopts
another. So what the operator leaves for the holder is still there when the store is read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.engines import ENGINES, Subject
from tests.records import dumps
from tests.records.dumps import Normal, Rows
from tests.records.playing import Played, played
from tests.records.record import Record
from tests.servers.lock_server import LockServer
from tests.servers.lock_store_in_etcd import lock_store_in_etcd

DUMPS: dict[str, Callable[[str], Rows]] = {
    "sqlite": lambda url: dumps.of_sqlite(Path(url.removeprefix("sqlite:///"))),
    "postgresql": dumps.of_postgres,
    "postgresql?recipe=advisory": dumps.of_advisory,
    "redis": dumps.of_redis,
    "etcd": dumps.of_etcd,
    "zookeeper": dumps.of_zookeeper,
}
SUBJECTS = {subject.name: subject for subject in ENGINES}


def text(story: Played, rows: Rows) -> str:
    return "\n".join([*(f"# {step}" for step in story.steps), "", *story.normal.lines(rows)]) + "\n"


def file_name(engine: str) -> str:
    return engine.replace("?recipe=", "-")


@pytest.mark.parametrize("subject", [SUBJECTS[name] for name in DUMPS], ids=lambda subject: subject.name)
def test_an_engine_keeps_what_is_recorded(
    subject: Subject, fresh_url: Callable[[Subject], str], record: Callable[[str], Record]
) -> None:
    url = fresh_url(subject)
    with played(url) as story:
        record(f"stores/{file_name(subject.name)}.txt").compare(text(story, DUMPS[subject.name](url)))


@pytest.mark.parametrize("subject", [SUBJECTS["redlock"]], ids=["redlock"])
def test_a_majority_of_redlock_s_nodes_keeps_what_is_recorded(
    subject: Subject, fresh_url: Callable[[Subject], str], record: Callable[[str], Record]
) -> None:
    url = fresh_url(subject)
    hosts, _, database = url.removeprefix("redlock://").partition("/")
    with played(url) as story:
        nodes = Counter(text(story, dumps.of_redis(f"redis://{host}/{database}")) for host in hosts.split(","))
        # A client goes on when a majority has answered: the last requests may not have reached the others.
        ((kept, count),) = nodes.most_common(1)
        record("stores/redlock.txt").compare(kept)
        assert count >= 3


def test_the_lock_server_keeps_what_is_recorded_in_sqlite(record: Callable[[str], Record]) -> None:
    with LockServer(store="sqlite:///locks.db?ballast_mib=1&log_kib=4") as server, played(server.url) as story:
        kept = dumps.of_server_sqlite(server.folder / "locks.db")
        record("stores/server-sqlite.txt").compare(text(story, dumps.of_records(kept)))


def test_the_lock_server_keeps_what_is_recorded_in_etcd(record: Callable[[str], Record]) -> None:
    with lock_store_in_etcd() as (etcd, server), played(server.url) as story:
        kept = dumps.of_server_etcd(etcd.endpoint)
        record("stores/server-etcd.txt").compare(text(story, dumps.of_records(kept)))


def test_a_dump_shows_another_row() -> None:
    normal = Normal({"0123456789ab": "billing"}, {4242: "clients"})
    row = {"id": "0123456789ab-1", "token": 1795135414846704, "pid": 4242, "since": 12.5}

    assert normal.lines([("claims", row)]) == ["claims id=<billing>-1 token=<n1> pid=<pid of clients> since=<time>"]
    assert normal.lines([("claims", row | {"id": "0123456789ab-2"})]) != normal.lines([("claims", row)])
    assert json.loads(dumps._unpacked(b"\x93\xa1x\xcf\x00\x06`\xaa\x8cq\xd2x\xff")) == ["x", 1795135477240440, -1]
