"""TLS, client certificates, user and password on the way to etcd: by the options of the store."""

from __future__ import annotations

import pytest

from holdfast.verify.servers.etcd import EtcdServer
from holdfast.verify.servers.lock_cluster import ClusterServer
from holdfast.verify.servers.process import wait_until
from tests.cluster.conftest import LEASE, Speak
from tests.cluster.stage import TTL_MS, OneNode, etcdctl, take
from tests.servers.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


def test_a_cluster_is_kept_in_an_etcd_that_wants_certificates(authority: Authority, speak: Speak) -> None:
    own, client = authority.issue("etcd"), authority.issue("holdfast")
    ca = str(authority.own.certificate)
    options = ("--cert-file", str(own.certificate), "--key-file", str(own.key), "--trusted-ca-file", ca)
    with EtcdServer(*options, "--client-cert-auth", tls=True) as etcd:
        secrets = f"&ca={ca}&cert={client.certificate}&key={client.key}"
        with ClusterServer(OneNode(etcd), lease=LEASE, store_options=secrets) as server:
            wait_until(lambda: server.leads, 60.0, "it leading")
            wire = speak(server)
            take(wire, f"{wire.open(TTL_MS)}-1", "k")

        stranger = ClusterServer(OneNode(etcd), lease=LEASE, store_options=f"&ca={ca}")
        try:
            stranger.launch()
            wait_until(lambda: not stranger.running or has_complained(stranger), 60.0, "it being told so")
            assert not stranger.leads
        finally:
            stranger.close()


def has_complained(server: ClusterServer) -> bool:
    return '"level": "error"' in server.log.read_text() or '"level": "warning"' in server.log.read_text()


def test_a_cluster_is_kept_in_an_etcd_that_wants_a_password(speak: Speak) -> None:
    with EtcdServer() as etcd:
        plain = OneNode(etcd)
        for words in (
            ("user", "add", "root:toor"),
            ("user", "grant-role", "root", "root"),
            ("user", "add", "locks:pass word"),
            ("role", "add", "locker"),
            ("role", "grant-permission", "locker", "readwrite", "--prefix=true", "/holdfast-server/"),
            ("user", "grant-role", "locks", "locker"),
            ("auth", "enable"),
        ):
            etcdctl(plain, *words)
        with ClusterServer(OneNode(etcd, "locks:pass%20word@"), lease=LEASE) as server:
            wait_until(lambda: server.leads, 60.0, "it leading")
            wire = speak(server)
            take(wire, f"{wire.open(TTL_MS)}-1", "k")
            assert "pass word" not in server.log.read_text()

        stranger = ClusterServer(OneNode(etcd, "locks:wrong@"), lease=LEASE)
        try:
            stranger.launch()
            wait_until(lambda: not stranger.running or has_complained(stranger), 60.0, "it being told so")
            assert not stranger.leads
            assert "wrong" not in stranger.log.read_text().replace("wrong password", "")
        finally:
            stranger.close()
