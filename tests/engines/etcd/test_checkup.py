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
from holdfast.engines.etcd.engine import EtcdEngine
from holdfast.verify.servers.etcd import EtcdCluster, EtcdServer


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
    assert findings["version"].found.startswith("3.")
    assert "1 at least" in findings["lease"].found
    assert "ms at the slowest" in findings["fsync"].found
    assert findings["compaction"].level == "good"
    assert findings["clock skew"].level == "good"


def test_a_url_that_names_one_of_three_members_is_told_so(cluster: EtcdCluster) -> None:
    finding = found(cluster.members[0].url)["endpoints"]

    assert (finding.level, finding.found) == ("warning", "the URL names 1 of 3 members")


def test_a_member_that_is_missing_leaves_no_margin(cluster: EtcdCluster) -> None:
    assert {finding.level for check, finding in found(cluster.url).items() if check != "fsync"} == {"good"}
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

    assert done.exit_code == 0
    assert {finding["check"] for finding in json.loads(done.output)["findings"]} >= {"promise", "leader", "lease"}
