"""A ZooKeeper that lacks what the engine needs is named in one line, with what is needed."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.engines.zookeeper.doctor import ServerReport, check_versions
from tests.faults.message_proxy import MessageProxy
from tests.faults.messages import Piece, ZooKeeperFramer
from tests.servers.zookeeper import ZooKeeperServer

CREATE2, NO_OPERATION = 15, 99


class OfZooKeeper34(ZooKeeperFramer):
    """ZooKeeper 3.4 does not know `create2`: it answers as every version does to a request that it does not know."""

    def feed(self, data: bytes) -> Iterator[Piece]:
        for piece, is_request in super().feed(data):
            if is_request and struct.unpack_from(">i", piece, 8)[0] == CREATE2:
                yield piece[:8] + struct.pack(">i", NO_OPERATION) + piece[12:], is_request
            else:
                yield piece, is_request


def test_a_server_before_3_5_is_refused_with_what_is_needed(server: ZooKeeperServer, chroot: str) -> None:
    with MessageProxy(server.port, OfZooKeeper34) as proxy:
        with pytest.raises(holdfast.EngineUnavailable) as refused:
            with holdfast.connect(f"zookeeper://127.0.0.1:{proxy.port}{chroot}") as locks:
                locks.lock("k").acquire(wait=10.0)

    assert refused.value.outcome == "not done"
    assert str(refused.value).endswith("ZooKeeper is too old: 3.5 or newer is needed (outcome: not done)")


def of(*versions: str) -> list[ServerReport]:
    """Servers that tell their version as `srvr` and `mntr` do."""
    keys = ("zookeeper version", "zk_version")
    return [
        ServerReport(str(number), facts={keys[number % 2]: f"{version}-39d3a4f269, built on 03/23/2017 10:13 GMT"})
        for number, version in enumerate(versions)
    ]


@pytest.mark.parametrize(
    ("reports", "level", "found"),
    [
        (of("3.4.10"), "danger", "3.4.10"),
        (of("3.8.4", "3.4.14", "3.8.4"), "danger", "3.4.14, 3.8.4"),
        (of("3.5.9", "3.5.9"), "warning", "3.5.9"),
        (of("3.9.3", "3.10.0"), "warning", "3.9.3, 3.10.0"),
        (of("3.6.0", "3.6.0"), "good", "3.6.0"),
        ([ServerReport("silent")], "warning", "unknown"),
    ],
)
def test_doctor_names_the_versions_and_the_one_that_is_too_old(
    reports: list[ServerReport], level: str, found: str
) -> None:
    finding = check_versions(reports)

    assert (finding.check, finding.level, finding.found) == ("version", level, found)
