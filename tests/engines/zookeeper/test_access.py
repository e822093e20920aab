"""Logging in, TLS, and what a URL or an existing client says about them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import holdfast
from holdfast import EngineUnavailable, InvalidRequest, aio
from holdfast.core import urls
from holdfast.engines.zookeeper.address import parse_address
from tests.servers.zookeeper import ZooKeeperServer

JAAS = """Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required user_bob="secret";
};
"""


class GuardedServer(ZooKeeperServer):
    """A server with a port for TLS, that knows one user by SASL."""

    def __init__(self) -> None:
        super().__init__()
        self.secure_port = self.own_port()
        self.certificate = self.folder / "server.crt"
        self.settings += [
            f"secureClientPort={self.secure_port}", "secureClientPortAddress=127.0.0.1",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={self.folder}/server.pem", "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={self.certificate}", "ssl.trustStore.type=PEM", "ssl.clientAuth=none",
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        ]  # fmt: skip
        # ZooKeeper 3.9.6 takes no DIGEST-MD5 in FIPS mode, which is its default.
        self.flags += [f"-Djava.security.auth.login.config={self.folder}/jaas.conf", "-Dzookeeper.fips-mode=false"]

    def prepare(self) -> None:
        super().prepare()
        key = self.folder / "server.key"
        names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        command += ["-addext", names, "-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run(command, check=True, capture_output=True)
        (self.folder / "server.pem").write_text(key.read_text() + self.certificate.read_text())
        (self.folder / "jaas.conf").write_text(JAAS)


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedServer]:
    with GuardedServer() as server:
        yield server


async def works(url: object) -> None:
    """A lock at this place is taken and given back, by both APIs."""
    with holdfast.connect(url) as locks:
        with locks.lock("k") as grant:
            grant.check()
    async with aio.connect(url) as tasks:
        async with tasks.lock("k") as again:
            assert again.token > grant.token


async def test_tls_with_the_servers_certificate(guarded: GuardedServer, chroot: str) -> None:
    await works(f"zookeeper://127.0.0.1:{guarded.secure_port}{chroot}?tls=1&ca={guarded.certificate}")


def test_a_certificate_that_nobody_vouches_for_is_refused(guarded: GuardedServer, chroot: str) -> None:
    with holdfast.connect(f"zookeeper://127.0.0.1:{guarded.secure_port}{chroot}?tls=1") as locks:
        with pytest.raises(EngineUnavailable):
            locks.lock("k").acquire(wait=1.0)
        with pytest.raises(EngineUnavailable, match="certificate verify failed"):
            locks.inspect("k")


async def test_sasl_with_a_password(guarded: GuardedServer, chroot: str) -> None:
    await works(f"zookeeper://bob:secret@{guarded.address}{chroot}?auth=sasl")


def test_a_wrong_sasl_password_is_refused(guarded: GuardedServer, chroot: str) -> None:
    with holdfast.connect(f"zookeeper://bob:wrong@{guarded.address}{chroot}?auth=sasl") as locks:
        with pytest.raises(EngineUnavailable):
            locks.lock("k").acquire(wait=1.0)


async def test_a_digest_login_keeps_everybody_else_out(server: ZooKeeperServer, chroot: str) -> None:
    url = f"zookeeper://ann:secret@{server.address}{chroot}"
    await works(url)

    for stranger in (f"zookeeper://ann:wrong@{server.address}{chroot}", server.url + chroot):
        with holdfast.connect(stranger) as locks, pytest.raises(EngineUnavailable, match="NoAuthError"):
            locks.lock("k").acquire(wait=1.0)
    plain = KazooClient(server.address)
    plain.start()
    with pytest.raises(NoAuthError):
        plain.get_children(f"{chroot}/holdfast")
    plain.stop()
    plain.close()


async def test_an_existing_client_lends_its_settings(server: ZooKeeperServer, chroot: str) -> None:
    lender = KazooClient(f"{server.address}{chroot}", auth_data=[("digest", "ann:secret")])

    await works(lender)
    with holdfast.connect(lender) as locks, holdfast.connect(f"zookeeper://{server.address}{chroot}") as rival:
        held = locks.lock("k").acquire()
        assert rival.lock("k").try_acquire() is None
        assert locks.guarantees.consensus
        held.release()


def test_an_existing_client_lends_what_it_knows_of_tls(guarded: GuardedServer, chroot: str) -> None:
    lender = KazooClient(
        f"127.0.0.1:{guarded.secure_port}{chroot}", use_ssl=True, ca=str(guarded.certificate), check_hostname=True
    )

    with holdfast.connect(lender) as locks, locks.lock("k") as grant:
        grant.check()


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://h?tsl=1", "zookeeper://h?ca=/x", "zookeeper://h?auth=kerberos", "zookeeper://h?mechanism=GSSAPI",
        "zookeeper://h?acl=creator", "zookeeper://u:p@h?acl=none", "zookeeper://h:port", "zookeeper://::1",
        "zookeeper://h/a//b", "zookeeper://h/zookeeper/x", "zookeeper://h?tls=maybe",
    ],
)  # fmt: skip
def test_a_url_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        holdfast.connect(url)


def test_hosts_without_a_port_get_zookeepers_own() -> None:
    place = parse_address(urls.parse("zookeeper://a,b:2182,[::1]/x/y"))

    assert (place.hosts, place.chroot) == (("a:2181", "b:2182", "[::1]:2181"), "/x/y")


def test_a_password_is_not_shown() -> None:
    with holdfast.connect("zookeeper://ann:secret@127.0.0.1:1") as locks:
        assert "secret" not in str(locks)
        assert "secret" not in repr(parse_address(urls.parse("zookeeper://ann:secret@127.0.0.1:1")))
