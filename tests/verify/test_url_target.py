"""The way to a deployment of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.verify.servers.redis import RedisServer
from holdfast.verify.targets.url import UrlTarget
from tests.verify.runs import judged, perform, told

NEAR = [("127.0.0.1", 7001), ("127.0.0.1", 7002)]


@pytest.mark.parametrize(
    ("url", "through"),
    [
        ("redis://user:s%40cret@db:6380/3", "redis://user:s%40cret@127.0.0.1:7001/3"),
        ("redis://db", "redis://127.0.0.1:7001"),
        ("etcd://a:1,b", "etcd://127.0.0.1:7001,127.0.0.1:7002"),
        ("postgresql://u@db/base?schema=x", "postgresql://u@127.0.0.1:7001/base?schema=x"),
    ],
)
def test_a_proxy_takes_the_place_of_each_host_and_of_nothing_else(url: str, through: str, tmp_path: Path) -> None:
    target = UrlTarget(tmp_path, url)

    assert target.url(NEAR[: len(target.addresses)]) == through
    assert target.url(target.addresses) == url


@pytest.mark.parametrize(
    "url", ["sqlite:///x.db", "rediss://db", "redis+sentinel://a,b/m", "postgresql://db/x?sslmode=require"]
)
def test_no_proxy_stands_where_it_would_be_found_out_or_passed_by(url: str, tmp_path: Path) -> None:
    assert UrlTarget(tmp_path, url).addresses == []


def test_connections_to_the_users_own_server_are_cut_for_one_client_only(tmp_path: Path) -> None:
    with RedisServer() as server:
        done = perform(server.url, tmp_path / "run", "mutex", "cut,stall", ttl=1.0)

    assert {fault.target for fault in done.history("mutex").faults} <= {"c2", "c3"}
    assert set(done.struck) == {"cut", "stall"}
    assert judged(done).result == "kept", told(judged(done))
