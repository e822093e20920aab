"""HTTP beside the wire."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from holdfast.errors import InvalidRequest
from holdfast.server import http, password_checks, passwords
from holdfast.server.addresses import Address
from holdfast.server.http import MOST_BUSY, MOST_CONNECTIONS, Answer, Http
from holdfast.server.http_hosts import Hosts
from holdfast.server.limits import Limits
from holdfast.server.settings import Settings, parse
from holdfast.server.users import User, Users
from tests.conformance.stage import eventually
from tests.server.inside import Inside
from tests.servers.lock_server import CHEAP, LockServer, Wire

LARGE = 64 << 20
PROTECTED = passwords.protect("right", CHEAP)


@pytest.fixture(scope="module")
def guarded() -> Iterator[LockServer]:
    rights = 'rights = [{ prefix = "a/", may = ["hold", "read"] }]'
    with LockServer(config=f'[users.ada]\npassword = "{PROTECTED}"\n{rights}\n') as server:
        yield server


def get(server: LockServer, path: str, **options: object) -> requests.Response:
    return requests.get(f"http://127.0.0.1:{server.http_port}{path}", timeout=20, **options)  # type: ignore[arg-type]


def metrics(server: LockServer) -> dict[str, float]:
    families = text_string_to_metric_families(get(server, "/metrics").text)
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


def test_it_is_alive_and_ready(shared_server: LockServer) -> None:
    assert (get(shared_server, "/healthz").status_code, get(shared_server, "/healthz").text) == (200, "alive\n")
    assert (get(shared_server, "/readyz").status_code, get(shared_server, "/readyz").text) == (200, "ready\n")


def test_locks_are_json(shared_server: LockServer, wire: Wire) -> None:
    session, name = wire.open(60_000, "APP", "billing"), f"test/{uuid4().hex}"
    token = wire("HF.ACQUIRE", f"{session}-1", name)[1]
    wire("HF.ACQUIRE", f"{session}-2", name, "OWNER", "another", "NOTE", "waiting")

    answer = get(shared_server, "/v1/locks", params={"prefix": name})

    assert answer.headers["content-type"] == "application/json"
    (lock,) = answer.json()
    assert (lock["name"], lock["kind"]) == (name, "holdfast.lock")
    assert [(one["app"], one["token"]) for one in lock["holders"]] == [("billing", token)]
    assert [(one["note"], one["token"]) for one in lock["waiters"]] == [("waiting", None)]


def test_metrics_count_what_happens(shared_server: LockServer, wire: Wire) -> None:
    before = metrics(shared_server)
    session, name = wire.open(), uuid4().hex
    wire("HF.ACQUIRE", f"{session}-1", name)
    wire("HF.ACQUIRE", f"{session}-2", name, "OWNER", "b")
    wire("HF.RELEASE", f"{session}-1")
    wire("HF.ACQUIRE", f"{session}-3", name, "OWNER", "c")

    after = metrics(shared_server)

    def more(metric: str) -> float:
        return after[metric] - before[metric]

    assert more("holdfast_grants_total") == 2
    assert more("holdfast_queued_total") == 2
    assert more("holdfast_releases_total") == 1
    assert more("holdfast_wait_seconds_count") == 1
    assert more("holdfast_hold_seconds_count") == 1
    assert more("holdfast_commit_seconds_count") >= 1
    assert after["holdfast_longest_line"] >= 1


def test_locks_that_are_too_many_for_one_answer_come_in_parts(shared_server: LockServer, wire: Wire) -> None:
    session, prefix = wire.open(), f"test/{uuid4().hex}/"
    names = [f"{prefix}{name}" for name in ("a b", "c&d", "e", "ü%20")]
    for number, name in enumerate(names):
        wire("HF.ACQUIRE", f"{session}-{number}", name)

    found, cursor = [], None
    while True:
        rest = "" if cursor is None else f"&cursor={cursor}"
        answer = get(shared_server, f"/v1/locks?prefix={prefix}&limit=1{rest}")
        found += [lock["name"] for lock in answer.json()]
        cursor = answer.headers.get("Holdfast-Cursor")
        if cursor is None:
            break

    assert found == names


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 404),
        ("/v1/locks?prefix=a//b", 400),
        ("/v1/locks?kind=lock", 400),
        ("/v1/locks?limit=0", 400),
        ("/v1/locks?cursor=nonsense", 400),
        ("/v1/locks?name=a", 400),
    ],
)
def test_what_cannot_be_answered_says_why(shared_server: LockServer, path: str, status: int) -> None:
    assert get(shared_server, path).status_code == status


def test_it_is_read_only(shared_server: LockServer) -> None:
    answer = requests.post(f"http://127.0.0.1:{shared_server.http_port}/v1/locks", timeout=20)

    assert answer.status_code == 405


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"\xff" * 9000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET //[ HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(shared_server: LockServer, request_: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shared_server.http_port), 20) as wire:
        wire.sendall(request_)

        assert wire.recv(100).startswith(b"HTTP/1.1 400 ")


def test_health_needs_no_login_and_the_rest_does(guarded: LockServer) -> None:
    assert get(guarded, "/healthz").status_code == 200
    assert get(guarded, "/readyz").status_code == 200
    for path in ("/metrics", "/v1/locks"):
        assert get(guarded, path).status_code == 401
        assert get(guarded, path, auth=("ada", "wrong")).status_code == 401
        assert get(guarded, path, auth=("nobody", "right")).status_code == 401
        assert get(guarded, path, auth=("ada", "right")).status_code == 200


def test_wrong_passwords_are_counted_and_told_to_the_log(guarded: LockServer) -> None:
    def refused() -> float:
        page = get(guarded, "/metrics", auth=("ada", "right")).text
        found = [family for family in text_string_to_metric_families(page) if family.name == "holdfast_logins_refused"]
        return float(found[0].samples[0].value)

    before = refused()
    get(guarded, "/metrics", auth=("mallory", "guess"))
    get(guarded, "/metrics")

    assert refused() == before + 1
    assert '"event": "login refused"' in guarded.log.read_text()
    assert '"user": "mallory"' in guarded.log.read_text()


async def test_a_login_that_cannot_be_checked_now_is_not_taken_for_a_wrong_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(password_checks, "MOST_WAITING", 0)
    inside = Inside(users=Users({"ada": User("ada", PROTECTED)}))
    served = Http(inside.service, inside.commands.logins, Hosts(()))

    answer = await served._answer("/metrics", f"Basic {b64encode(b'ada:right').decode()}", "")

    assert (answer.status, answer.body) == (503, b"0 logins are being checked: come back in a moment\n")
    inside.close()


async def test_a_user_that_is_gone_while_its_password_is_checked_sees_nothing() -> None:
    # One that takes its time.
    inside = Inside(users=Users({"ada": User("ada", passwords.protect("right"))}))
    served = Http(inside.service, inside.commands.logins, Hosts(()))

    asking = inside.loop.create_task(served._answer("/metrics", f"Basic {b64encode(b'ada:right').decode()}", ""))
    await inside.turn()
    inside.service.users = Users({"bob": User("bob", PROTECTED)})

    assert (await asking).status == 401
    inside.close()


def test_only_locks_that_one_may_read_are_shown(guarded: LockServer) -> None:
    with guarded.speak() as wire:
        wire("AUTH", "ada", "right")
        wire.open()
        wire("HF.ACQUIRE", "*", "a/x")

        assert [lock["name"] for lock in get(guarded, "/v1/locks", auth=("ada", "right")).json()] == ["a/x"]


async def test_lists_of_locks_come_one_in_a_turn() -> None:
    inside = Inside()
    served = Http(inside.service, inside.commands.logins, Hosts(()))
    listed: list[int] = []
    turn = 0

    async def look() -> None:
        answer = await served._answer("/v1/locks", "", "test")
        assert answer.status == 200
        listed.append(turn)

    looks = [asyncio.ensure_future(look()) for _ in range(5)]
    while not all(one.done() for one in looks):
        turn += 1
        await inside.turn(1)

    await asyncio.gather(*looks)
    assert len(set(listed)) == 5
    inside.close()


async def test_a_list_has_its_turn_although_others_use_up_every_one() -> None:
    inside = Inside()
    served = Http(inside.service, inside.commands.logins, Hosts(()))
    looking = asyncio.ensure_future(served._answer("/v1/locks", "", "test"))
    for _ in range(20):
        inside.service.is_spent = True
        await inside.turn(1)

    assert looking.done()
    assert looking.result().status == 200
    inside.close()


async def test_answers_that_nobody_reads_are_bounded_all_together() -> None:
    class Large(Http):
        async def _answer(self, target: str, authorization: str, peer: str) -> Answer:
            return Answer(200, bytes(LARGE))

    inside = Inside(limits=Limits(total_output=5 * LARGE))
    served = Large(inside.service, inside.commands.logins, Hosts(()))
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    wires = []
    for _ in range(2):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        wires.append((reader, writer))
        await eventually(lambda: served._unread > 0)
    reader, writer = wires[1]
    reader._transport.resume_reading()  # type: ignore[attr-defined]

    assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
    for _, writer in wires:
        writer.transport.abort()
    server.close()
    await eventually(lambda: served._unread == 0)
    inside.close()


async def test_an_answer_that_nobody_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Large(Http):
        async def _answer(self, target: str, authorization: str, peer: str) -> Answer:
            return Answer(200, bytes(LARGE))

        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await super().serve(reader, writer)
            over.set()

    over = asyncio.Event()

    monkeypatch.setattr(http, "WITHIN", 0.2)
    inside = Inside()
    served = Large(inside.service, inside.commands.logins, Hosts(()))
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(30):
        await over.wait()
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        taken = 0
        with suppress(ConnectionError):
            while data := await reader.read(1 << 20):
                taken += len(data)

    assert taken < LARGE
    writer.close()
    server.close()
    inside.close()


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:7421",
        "localhost.",
        "127.0.0.1",
        "10.1.2.3:80",
        "[::1]",
        "[::1]:80",
        socket.gethostname(),
    ],
)
def test_it_answers_for_addresses_and_its_own_names(shared_server: LockServer, host: str) -> None:
    for path in ("/v1/locks", "/metrics"):
        assert get(shared_server, path, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7421", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_page_whose_name_leads_here_for_a_moment_reads_nothing(shared_server: LockServer, host: str) -> None:
    for path in ("/v1/locks", "/metrics", "/"):
        answer = get(shared_server, path, headers={"Host": host})
        assert answer.status_code == 421
        assert "http_hosts" in answer.text
    # Load balancers ask for health by names of their own, and it tells nothing of locks.
    for path in ("/healthz", "/readyz"):
        assert get(shared_server, path, headers={"Host": host}).status_code == 200


def test_a_request_is_for_one_host(shared_server: LockServer) -> None:
    with socket.create_connection(("127.0.0.1", shared_server.http_port), 20) as wire:
        wire.sendall(b"GET /v1/locks HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n")

        assert wire.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_says_no_host_is_no_browser(shared_server: LockServer) -> None:
    with socket.create_connection(("127.0.0.1", shared_server.http_port), 20) as wire:
        wire.sendall(b"GET /v1/locks HTTP/1.0\r\n\r\n")

        assert wire.recv(100).startswith(b"HTTP/1.1 200 ")


def test_names_that_the_configuration_says_count_from_a_reload_on() -> None:
    with LockServer(config='http_hosts = ["locks.example"]') as server:
        for name, status in (("locks.example", 200), ("other.example", 421)):
            assert get(server, "/v1/locks", headers={"Host": name}).status_code == status
        server.configure('http_hosts = ["other.example"]')
        server.reload()
        for name, status in (("locks.example", 421), ("other.example:80", 200)):
            assert get(server, "/v1/locks", headers={"Host": name}).status_code == status


def test_the_names_in_its_addresses_are_its_own() -> None:
    settings = Settings(http=Address("localhost", 1), advertise=Address("locks.example", 2), store="memory://")

    assert settings.hosts.allow("locks.example:2")
    assert not settings.hosts.allow("other.example")


@pytest.mark.parametrize("hosts", ["locks.example", [1], [""]])
def test_hosts_are_a_list_of_names(hosts: object) -> None:
    with pytest.raises(InvalidRequest, match="http_hosts"):
        parse({"http_hosts": hosts})


def test_silent_connections_keep_nobody_from_asking_for_health(shared_server: LockServer) -> None:
    wires = [socket.create_connection(("127.0.0.1", shared_server.http_port), 20) for _ in range(MOST_CONNECTIONS)]

    for path in ("/healthz", "/readyz", "/metrics"):
        assert get(shared_server, path).status_code == 200
    # Those that came first have gone, and only those.
    with suppress(ConnectionResetError):
        assert wires[0].recv(1) == b""
    wires[-1].sendall(b"GET /v1/locks HTTP/1.1\r\n\r\n")
    assert wires[-1].recv(100).startswith(b"HTTP/1.1 200 ")
    for wire in wires:
        wire.close()


async def test_health_has_room_while_all_other_connections_are_busy() -> None:
    class Slow(Http):
        async def _answer(self, target: str, authorization: str, peer: str) -> Answer:
            if target == "/slow":
                await over.wait()
            return await super()._answer(target, authorization, peer)

    async def ask(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        return reader, writer

    over = asyncio.Event()
    inside = Inside()
    served = Slow(inside.service, inside.commands.logins, Hosts(()))
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    busy = [await ask("/slow") for _ in range(MOST_BUSY)]
    await eventually(lambda: len(served._connections) == MOST_BUSY and not served._silent)

    found = {}
    for path in ("/healthz", "/readyz", "/metrics"):
        reader, writer = await ask(path)
        found[path] = (await reader.readline()).split()[1]
        writer.close()

    assert found == {"/healthz": b"200", "/readyz": b"200", "/metrics": b"503"}
    over.set()
    assert [(await reader.readline()).split()[1] for reader, _ in busy] == [b"404"] * MOST_BUSY
    for _, writer in busy:
        writer.close()
    server.close()
    await eventually(lambda: not served._connections)
    inside.close()
