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

from holdfast.server import http, logins, passwords
from holdfast.server.http import Answer, Http
from holdfast.server.limits import Limits
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
    monkeypatch.setattr(logins, "MOST_WAITING", 0)
    inside = Inside(users=Users({"ada": User("ada", PROTECTED)}))
    served = Http(inside.service, inside.commands.logins)

    answer = await served._answer("/metrics", f"Basic {b64encode(b'ada:right').decode()}", "")

    assert (answer.status, answer.body) == (503, b"0 logins are being checked: come back in a moment\n")
    inside.close()


async def test_a_user_that_is_gone_while_its_password_is_checked_sees_nothing() -> None:
    # One that takes its time.
    inside = Inside(users=Users({"ada": User("ada", passwords.protect("right"))}))
    served = Http(inside.service, inside.commands.logins)

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
    served = Http(inside.service, inside.commands.logins)
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
    served = Http(inside.service, inside.commands.logins)
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
    served = Large(inside.service, inside.commands.logins)
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
    served = Large(inside.service, inside.commands.logins)
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
