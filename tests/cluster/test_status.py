"""`holdfast cluster status`, HF.CLUSTER and the metrics: who leads, who follows, who does not answer."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from click.testing import CliRunner, Result

import holdfast
from holdfast.cli.cluster import cluster as command
from holdfast.cli.main import exit_code_of
from holdfast.verify.servers.lock_cluster import ClusterServer, LockCluster
from holdfast.verify.servers.process import free_port, wait_until
from tests.servers.lock_server import LockServer


def status(url: str, *options: str) -> Result:
    return CliRunner().invoke(command, ["status", url, *options])


def as_json(url: str) -> tuple[int, dict[str, Any]]:
    done = status(url, "--json")
    found: dict[str, Any] = json.loads(done.output)
    return done.exit_code, found


def page(server: ClusterServer, path: str) -> tuple[int, str]:
    """What it says over HTTP."""
    asked = urllib.request.Request(f"http://{server.host}:{server.http_port}{path}")
    try:
        with urllib.request.urlopen(asked, timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metric(server: ClusterServer, name: str) -> float:
    lines = page(server, "/metrics")[1].splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def test_one_leads_and_the_others_follow(cluster: LockCluster) -> None:
    code, found = as_json(cluster.url)

    assert code == 0
    assert sorted(server["role"] for server in found["servers"]) == ["follower", "follower", "leader"]
    assert found["leader"] == str(cluster.leader().address)
    assert [node["healthy"] for node in found["etcd"]] == [True, True, True]
    assert sum(node["leader"] for node in found["etcd"]) == 1


def test_servers_that_the_url_does_not_name_are_found_by_those_that_it_does(cluster: LockCluster) -> None:
    code, found = as_json(cluster.followers()[0].url)

    assert code == 0
    assert {server["address"] for server in found["servers"]} == {str(member.address) for member in cluster.members}


def test_followers_are_as_far_as_the_leader(cluster: LockCluster) -> None:
    def agree() -> bool:
        return len({member.status["number"] for member in cluster.members}) == 1

    wait_until(agree, 30.0, "everybody being as far as the leader")


def test_a_table_for_people_says_who_leads(cluster: LockCluster) -> None:
    shown = status(cluster.url).output

    assert f"{cluster.leader().address} leads" in shown
    assert shown.count("follower") == 2


def test_a_server_that_does_not_answer_is_shown_and_makes_the_exit_code_1(cluster: LockCluster) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    done = status(f"{cluster.url},{nobody}")

    assert done.exit_code == 1
    assert f"{nobody} does not answer" in done.output


def test_a_member_that_stands_still_is_shown_although_the_url_does_not_name_it(cluster: LockCluster) -> None:
    leader = cluster.leader()
    follower = cluster.followers()[0]
    follower.pause()
    try:
        code, found = as_json(leader.url)
    finally:
        follower.resume()
    silent = [server["address"] for server in found["servers"] if not server["answers"]]

    assert (code, silent) == (1, [str(follower.address)])


def test_that_nobody_answers_has_a_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    code = exit_code_of(["cluster", "status", f"holdfast://127.0.0.1:{free_port()}"])

    assert code == 69
    assert "nobody leads" in capsys.readouterr().out


def test_a_server_that_is_alone_says_that_it_is_no_cluster() -> None:
    with LockServer() as server:
        done = status(server.url)

    assert done.exit_code == 69
    assert "not one of several" in done.output


def test_a_url_of_something_else_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["cluster", "status", "etcd://127.0.0.1"]) == 2
    assert "holdfast://" in capsys.readouterr().err


def test_the_metrics_say_who_leads_and_how_far_each_is(cluster: LockCluster) -> None:
    leader = cluster.leader()
    with holdfast.connect(cluster.url) as locks, locks.lock("k"):
        number = leader.status["number"]
    assert number > 0

    assert {member is leader: metric(member, "holdfast_cluster_leader") for member in cluster.members} == {
        True: 1.0,
        False: 0.0,
    }

    def as_far() -> bool:
        return all(metric(member, "holdfast_cluster_batch") >= number for member in cluster.members)

    wait_until(as_far, 30.0, "everybody being as far as the leader")


def test_followers_are_healthy_and_ready(cluster: LockCluster) -> None:
    for member in cluster.members:
        assert page(member, "/healthz")[0] == 200
        assert page(member, "/readyz")[0] == 200
