"""TLS and client certificates."""

from __future__ import annotations

import json
import select
import socket
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from holdfast import aio
from holdfast.core import urls
from holdfast.engines.redis.route import make_tls
from holdfast.server.handshakes import SPARE
from holdfast.server.http import MOST_CONNECTIONS
from tests.engines.wire.together import give, names, take
from tests.faults.children import eventually
from tests.servers.certificates import Authority, Pair
from tests.servers.lock_server import LockServer, Wire


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


def trusting(authority: Authority, shown: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.own.certificate))
    if shown is not None:
        context.load_cert_chain(*shown)
    return context


def config(server: Pair, clients: Authority | None = None, more: str = "") -> str:
    vouch = f'client_ca = "{clients.own.certificate}"\n' if clients is not None else ""
    return f'[tls]\ncertificate = "{server.certificate}"\nkey = "{server.key}"\n{vouch}{more}'


def test_commands_and_http_go_through_tls(authority: Authority) -> None:
    with LockServer(config=config(authority.issue("server"))) as server:
        with server.speak(tls=trusting(authority)) as wire:
            session = wire.open()
            assert wire("HF.ACQUIRE", f"{session}-1", "k")[0] == "granted"
        url = f"https://localhost:{server.http_port}/readyz"
        assert requests.get(url, verify=str(authority.own.certificate), timeout=20).text == "ready\n"


def test_an_authority_without_a_key_usage_is_refused_by_a_strict_python_which_says_why(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ordinary", says_for_what=False)
    strict = bool(ssl.create_default_context().verify_flags & ssl.VERIFY_X509_STRICT)
    with LockServer(config=config(authority.issue("server"))) as server:
        url = f"holdfast://localhost:{server.port}?durable=0&ca={authority.own.certificate}"
        tls = make_tls(urls.parse(url))
        if strict:
            with pytest.raises(ssl.SSLCertVerificationError, match="does not include key usage"):
                server.speak(tls=tls)
        else:
            with server.speak(tls=tls) as wire:
                assert wire.open()


async def test_the_tasks_of_a_client_share_its_connection(authority: Authority) -> None:
    with LockServer(store="sqlite:///locks.db", config=config(authority.issue("server"))) as server:
        url = f"holdfast://localhost:{server.port}?ca={authority.own.certificate}"
        async with aio.connect(url) as locks:
            for _ in range(3):
                grants = await take(locks, names())
                assert len({grant.token for grant in grants}) == len(grants)
                await give(grants)

            assert await locks.list() == []


def test_a_client_in_plain_text_gets_nothing(authority: Authority) -> None:
    with LockServer(config=config(authority.issue("server"))) as server, server.speak() as wire:
        wire.send("PING")

        with pytest.raises((EOFError, ConnectionError)):
            wire.read()


@pytest.mark.parametrize("port", ["port", "http_port"])
def test_who_begins_no_handshake_is_closed(authority: Authority, port: str) -> None:
    settings = config(authority.issue("server"), more="[limits]\nlogin = 200\n")
    with LockServer(config=settings) as server, Wire(getattr(server, port)) as wire:
        assert list(wire.rest()) == []


def test_how_long_a_handshake_may_take_is_read_again(authority: Authority) -> None:
    pair = authority.issue("server")
    with LockServer(config=config(pair)) as server:
        server.configure(config(pair, more="[limits]\nlogin = 200\n"))
        server.reload()

        with server.speak() as wire:
            assert list(wire.rest()) == []


def test_a_certificate_is_replaced_without_a_restart(authority: Authority) -> None:
    with LockServer(config=config(authority.issue("first"))) as server:
        server.configure(config(authority.issue("second")))
        server.reload()

        with server.speak(tls=trusting(authority)) as wire:
            assert isinstance(wire.socket, ssl.SSLSocket)
            shown = wire.socket.getpeercert()
        assert shown is not None
        assert (("commonName", "second"),) in shown["subject"]


def test_a_certificate_without_its_key_changes_nothing(authority: Authority) -> None:
    first, second = authority.issue("first"), authority.issue("second")
    with LockServer(config=config(first)) as server:
        server.configure(config(Pair(second.certificate, first.key)))
        server.reload("configuration not reloaded")

        with server.speak(tls=trusting(authority)) as wire:
            assert isinstance(wire.socket, ssl.SSLSocket)
            shown = wire.socket.getpeercert()
        assert shown is not None
        assert (("commonName", "first"),) in shown["subject"]


def test_another_authority_for_clients_needs_a_restart_and_is_not_trusted_before(
    authority: Authority, tmp_path: Path
) -> None:
    server_pair, other = authority.issue("server"), Authority(tmp_path, "other")
    vouching = tmp_path / "clients.pem"
    vouching.write_text(authority.own.certificate.read_text())
    settings = config(server_pair).rstrip() + f'\nclient_ca = "{vouching}"\n'
    with LockServer(config=settings) as server:
        vouching.write_text(other.own.certificate.read_text())
        server.reload()

        assert '"setting": "tls.client_ca"' in server.log.read_text()
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            server.speak(tls=trusting(authority, other.issue("ada")))("PING")


class TestRefusedHandshakes:
    """Whoever is refused before the first request finds nothing to read: it is the log that says why."""

    @staticmethod
    def told(server: LockServer, event: str = "TLS handshake refused") -> list[dict[str, Any]]:
        events = [json.loads(line) for line in server.log.read_text().splitlines()]
        return [one for one in events if one["event"] == event]

    def told_of(self, peer: str, server: LockServer) -> dict[str, Any]:
        """The event of this peer, when it is there."""
        eventually(lambda: peer in [event["peer"] for event in self.told(server)], f"nothing was told of {peer}")
        return next(event for event in self.told(server) if event["peer"] == peer)

    @staticmethod
    def knock(port: int, tls: ssl.SSLContext | None) -> str:
        """Ask something until the server ends it; from where."""
        wire = socket.create_connection(("127.0.0.1", port), 20)
        peer = "{}:{}".format(*wire.getsockname())
        with suppress(ssl.SSLError, ConnectionError):
            wire = wire if tls is None else tls.wrap_socket(wire, server_hostname="localhost")
            wire.sendall(b"*1\r\n$4\r\nPING\r\n")
            assert wire.recv(100) == b"", "it was answered"
        wire.close()
        return peer

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_they_are_told_to_the_log(self, authority: Authority, tmp_path: Path, version: ssl.TLSVersion) -> None:
        other = Authority(tmp_path, "other")
        stranger, nobody = trusting(authority, other.issue("ada")), trusting(authority)
        stranger.maximum_version = nobody.maximum_version = version
        with LockServer(config=config(authority.issue("server"), authority)) as server:
            for tls, problem in (
                (nobody, "peer did not return a certificate"),
                (stranger, "certificate verify failed"),
                (None, "SSL"),  # what it takes plain text for is another thing in every version
            ):
                event = self.told_of(self.knock(server.port, tls), server)
                assert event["level"] == "warning"
                assert problem in event["problem"]

    def test_those_of_http_are_too(self, authority: Authority) -> None:
        with LockServer(config=config(authority.issue("server"))) as server:
            assert "SSL" in self.told_of(self.knock(server.http_port, None), server)["problem"]

    def test_many_of_them_are_told_as_a_number(self, authority: Authority) -> None:
        with LockServer(config=config(authority.issue("server"))) as server:
            wires = [server.speak() for _ in range(200)]
            for wire in wires:
                wire.send("PING")

            def left_out() -> int:
                return sum(event["left_out"] for event in self.told(server, "more of the same were not logged"))

            eventually(lambda: len(self.told(server)) + left_out() == 200, "some were lost")
            assert left_out() > 0

    def test_who_only_looks_whether_somebody_listens_is_no_reason_to_warn(self, authority: Authority) -> None:
        with LockServer("--log-level", "debug", config=config(authority.issue("server"))) as server:
            server.speak().close()

            eventually(lambda: self.told(server, "connection ended before its first request"), "it was not noticed")
            assert self.told(server) == []

    def test_who_begins_none_is_told_to_the_log(self, authority: Authority) -> None:
        settings = config(authority.issue("server"), more="[limits]\nlogin = 200\n")
        with LockServer(config=settings) as server, server.speak() as wire:
            assert list(wire.rest()) == []

            eventually(lambda: self.told(server), "nothing was told")
            assert "taking longer than 0.2 seconds" in self.told(server)[0]["problem"]


class TestHandshakesUnderWay:
    """They take memory as connections do, and count as such."""

    @staticmethod
    def open_of(wires: list[Wire]) -> list[bool]:
        """Which of them the server has not closed."""
        poll = select.poll()
        for wire in wires:
            poll.register(wire.socket, select.POLLIN)
        ended = {number for number, _ in poll.poll(0)}
        return [wire.socket.fileno() not in ended for wire in wires]

    @pytest.mark.parametrize(
        ("port", "connections", "most"),
        [("port", 100, 100), ("port", 70, 70), ("port", 2, SPARE), ("http_port", 2, MOST_CONNECTIONS)],
    )
    def test_the_oldest_go_when_there_are_too_many(
        self, authority: Authority, port: str, connections: int, most: int
    ) -> None:
        settings = config(authority.issue("server"), more=f"[limits]\nconnections = {connections}\n")
        with LockServer(config=settings) as server, ExitStack() as stack:
            number = getattr(server, port)
            wires = [stack.enter_context(Wire(number)) for _ in range(most + 10)]

            eventually(lambda: self.open_of(wires) == [False] * 10 + [True] * most, "others were closed")
            assert "it was not over yet" in server.log.read_text()

    def test_whoever_shakes_hands_comes_in_all_the_same(self, authority: Authority) -> None:
        settings = config(authority.issue("server"), more="[limits]\nconnections = 1\n")
        with LockServer(config=settings) as server:
            for _ in range(SPARE):
                server.speak()

            assert server.speak(tls=trusting(authority))("PING") == "PONG"
            # And is told clearly if it may not.
            late = server.speak(tls=trusting(authority))
            assert str(late.read()).startswith("HFLIMIT the limit connections = 1")


class TestClientCertificates:
    """With client_ca, each client has to be vouched for, and its name can be a user's."""

    USERS = """
[users.ada]
certificate = "ada"
rights = [{ prefix = "ada/", may = ["hold"] }]
"""

    def test_a_client_without_one_is_refused(self, authority: Authority) -> None:
        with LockServer(config=config(authority.issue("server"), authority)) as server:
            with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
                server.speak(tls=trusting(authority))("PING")
            assert server.speak(tls=trusting(authority, authority.issue("anybody")))("PING") == "PONG"

    def test_one_that_another_authority_issued_is_refused(self, authority: Authority, tmp_path: Path) -> None:
        other = Authority(tmp_path, "other")
        with LockServer(config=config(authority.issue("server"), authority)) as server:
            with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
                server.speak(tls=trusting(authority, other.issue("ada")))("PING")

    def test_its_name_is_a_login(self, authority: Authority) -> None:
        with LockServer(config=config(authority.issue("server"), authority, self.USERS)) as server:
            with server.speak(tls=trusting(authority, authority.issue("ada"))) as wire:
                wire.open()
                assert wire("HF.ACQUIRE", "*", "ada/x")[0] == "granted"
                assert str(wire("HF.ACQUIRE", "*", "bob/x")).startswith("NOPERM")
            with server.speak(tls=trusting(authority, authority.issue("bob"))) as wire:
                assert str(wire("PING")).startswith("NOAUTH")

    def test_a_reset_leaves_whom_the_certificate_names_logged_in(self, authority: Authority) -> None:
        with LockServer(config=config(authority.issue("server"), authority, self.USERS)) as server:
            wire = server.speak(tls=trusting(authority, authority.issue("ada")))
            assert wire("RESET") == "RESET"

            wire.open()
            assert wire("HF.ACQUIRE", "*", "ada/x")[0] == "granted"
