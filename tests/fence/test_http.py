"""FenceMiddleware in a real uvicorn and a real WSGI server, and the auth object of httpx and requests."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import redis.asyncio
import requests
from psycopg_pool import ConnectionPool
from sqlalchemy import create_engine

import holdfast
from holdfast.errors import InvalidRequest, LockLost, NotHeld
from holdfast.fence import DynamoFence, FenceAuth, FenceMiddleware, FileFence, RedisFence, S3Fence, SqlStore
from holdfast.fence.middleware import AsgiFence, WsgiFence
from holdfast.verify.servers.process import Server
from holdfast.verify.servers.redis import RedisServer
from tests.fence.databases import Postgres, SqlDatabase
from tests.servers.moto import MotoServer
from tests.servers.uvicorn import ROOT, UvicornServer

WSGI = """
import os, sys
from wsgiref.simple_server import make_server
sys.path.insert(0, sys.argv[2])
from tests.fence.http_service import wsgi_app
make_server("127.0.0.1", int(sys.argv[1]), wsgi_app).serve_forever()
"""


class WsgiServer(Server):
    """The reference WSGI server."""

    name = "wsgi"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [sys.executable, "-c", WSGI, str(self.port), str(ROOT)]


@pytest.fixture(scope="module", params=["asgi", "wsgi"])
def service(request: pytest.FixtureRequest) -> Iterator[UvicornServer | WsgiServer]:
    server = UvicornServer("tests.fence.http_service:app") if request.param == "asgi" else WsgiServer()
    with server as running:
        yield running


@pytest.fixture
def client(service: UvicornServer | WsgiServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=30) as made:
        yield made


def headers(resource: str, token: str) -> dict[str, str]:
    return {"Fencing-Resource": resource.replace(":", "%3A"), "Fencing-Token": token}


def asked(client: httpx.Client) -> int:
    """How many writes have reached the application."""
    return int(client.get("/").json()["asked"])


def test_a_stale_request_gets_409_and_never_reaches_the_application(client: httpx.Client, name: str) -> None:
    assert client.put("/fenced", content="1", headers=headers(name, "2018")).status_code == 200
    before = asked(client)

    answer = client.put("/fenced", content="2", headers=headers(name, "2017"))

    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "detail": answer.json()["detail"],
        "resource": name,
        "presented": 2017,
        "highest": 2018,
    }
    assert asked(client) == before


def test_a_protected_request_without_headers_gets_428(client: httpx.Client, name: str) -> None:
    before = asked(client)

    for wrong in ({}, {"Fencing-Token": "17"}, {"Fencing-Resource": "x"}):
        answer = client.put("/fenced", content="1", headers=wrong)
        assert answer.status_code == 428
        assert answer.headers["content-type"] == "application/problem+json"

    assert asked(client) == before


def test_a_path_that_is_not_ascii_is_protected(client: httpx.Client) -> None:
    before = asked(client)

    assert client.put("/%C3%9Cbungen/7", content="1").status_code == 428
    assert asked(client) == before


def test_a_path_that_is_no_text_is_served(client: httpx.Client) -> None:
    assert client.get("/unfenced/%FF%C3").status_code == 200


@pytest.mark.parametrize(
    ("resource", "token"), [("x", "0"), ("x", "17;SHARED"), ("x", "1,2"), ("%ff", "17"), ("a%00b", "17"), ("", "17")]
)
def test_headers_that_make_no_sense_get_400(client: httpx.Client, resource: str, token: str) -> None:
    answer = client.put("/fenced", content="1", headers=headers(resource, token))

    assert answer.status_code == 400
    assert answer.json()["title"] == "Bad Request"


def test_a_request_that_needs_no_token_passes_without(client: httpx.Client) -> None:
    assert client.get("/fenced").json()["token"] is None


def test_the_token_is_handed_on_to_the_application(client: httpx.Client, name: str) -> None:
    answer = client.get("/fenced", headers=headers(name, "17;shared"))

    assert answer.json()["token"] == [name, 17, True]


def test_a_permit_is_a_resource_of_its_own(client: httpx.Client) -> None:
    assert client.get("/", headers=headers("gpu%2F%2F0", "3018")).status_code == 200
    assert client.get("/", headers=headers("gpu%2F%2F1", "3017")).status_code == 200
    assert client.get("/", headers=headers("gpu%2F%2F0", "3017")).status_code == 409


def test_the_highest_token_outlives_the_process_that_serves(name: str) -> None:
    with UvicornServer("tests.fence.http_service:app") as server:
        auth = FenceAuth(18, resource=name)
        assert httpx.put(f"{server.url}/fenced", content="1", auth=auth).status_code == 200
        server.stop()
        server.start()

        assert httpx.put(f"{server.url}/fenced", content="1", auth=FenceAuth(17, resource=name)).status_code == 409


def test_httpx_and_requests_send_the_headers_of_the_current_grant(client: httpx.Client, name: str) -> None:
    hostile = f"{name}/日本 '\"%"
    with holdfast.connect(f"memory://{name.partition(':')[2]}") as locks, locks.lock(hostile) as grant:
        auth = FenceAuth(grant)
        by_httpx = client.get("/", auth=auth).json()["token"]
        by_requests = requests.get(str(client.base_url), auth=auth, timeout=30).json()["token"]

        assert by_httpx == by_requests == [hostile, grant.token, False]


async def test_an_asyncio_client_of_httpx_sends_them_too(client: httpx.Client, name: str) -> None:
    async with httpx.AsyncClient(base_url=client.base_url, auth=FenceAuth("17;shared", resource=name)) as own:
        assert (await own.get("/")).json()["token"] == [name, 17, True]


def test_a_lost_grant_sends_nothing(client: httpx.Client, name: str) -> None:
    with holdfast.connect(f"memory://{name.partition(':')[2]}") as locks:
        grant = locks.lock("a").acquire()
        auth = FenceAuth(lambda: grant, resource=name)
        locks.break_lock("a", force=True)
        assert grant.lost.wait(30)
        before = asked(client)

        with pytest.raises((LockLost, NotHeld)):
            client.put("/fenced", content="1", auth=auth)

        assert asked(client) == before


def call(middleware: Any, method: str = "PUT", path: str = "/", **sent: str) -> int:
    """Send one request through an ASGI middleware in this process; the status."""
    answers: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        answers.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    lines = [(f"fencing-{key}".encode(), value.encode()) for key, value in sent.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": lines}
    asyncio.run(middleware(scope, receive, send))
    return int(answers[0]["status"])


async def echo(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def judged_by(store: Any, name: str) -> None:
    middleware = FenceMiddleware(echo, store=store)
    assert call(middleware, resource=name, token="18") == 200
    assert call(middleware, resource=name, token="17") == 409
    assert call(middleware, resource=name, token="18") == 200


def test_tokens_can_live_in_any_database(database: SqlDatabase, name: str) -> None:
    judged_by(SqlStore(database.connect), name)


def test_a_pool_of_connections_is_given_back_what_a_check_took(postgres_server: Any, name: str) -> None:
    Postgres(postgres_server.url).create()
    with ConnectionPool(postgres_server.url, min_size=1, max_size=1, timeout=5.0, open=True) as pool:
        judged_by(SqlStore(pool.connection), name)
        # Several checks with one connection: each has to give it back.
        judged_by(SqlStore(pool.getconn), f"{name}:getconn")


def test_a_pool_of_sqlalchemy_will_do(database: SqlDatabase, name: str) -> None:
    engine = create_engine(database.sqlalchemy_url)
    judged_by(SqlStore(engine.raw_connection), name)
    engine.dispose()


def test_tokens_can_live_in_redis(redis_server: RedisServer, name: str) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        judged_by(RedisFence(client), name)


async def test_tokens_can_live_in_redis_over_asyncio(redis_server: RedisServer, name: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_server.url) as client:
        middleware: Any = FenceMiddleware(echo, store=RedisFence(client))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(middleware), base_url="http://x") as own:
            assert (await own.put("/", auth=FenceAuth(18, resource=name))).status_code == 200
            assert (await own.put("/", auth=FenceAuth(17, resource=name))).status_code == 409


def test_tokens_can_live_in_files(tmp_path: Path, name: str) -> None:
    judged_by(FileFence(tmp_path), name)


def test_tokens_can_live_in_s3_and_dynamodb(moto_server: MotoServer, name: str) -> None:
    s3, dynamo = moto_server.client("s3"), moto_server.client("dynamodb")
    s3.create_bucket(Bucket="tokens")
    DynamoFence(dynamo).create()
    judged_by(S3Fence(s3, "tokens"), name)
    judged_by(DynamoFence(dynamo), name)
    s3.close()
    dynamo.close()


def test_a_service_that_knows_its_resources_refuses_another_one(tmp_path: Path) -> None:
    middleware = FenceMiddleware(echo, store=FileFence(tmp_path), resource=lambda _, path: path[1:])

    assert call(middleware, path="/users", resource="users", token="17") == 200
    assert call(middleware, path="/users", resource="orders", token="17") == 400


def test_once_refuses_a_request_that_comes_again(tmp_path: Path) -> None:
    middleware = FenceMiddleware(echo, store=FileFence(tmp_path), once=True)

    assert call(middleware, resource="users", token="17") == 200
    assert call(middleware, resource="users", token="17") == 409


def test_the_kind_of_application_is_seen(tmp_path: Path, redis_server: RedisServer) -> None:
    class Framework:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    def wsgi(environ: Any, start_response: Any) -> list[bytes]:
        return []

    store = FileFence(tmp_path)
    assert isinstance(FenceMiddleware(Framework(), store=store), AsgiFence)
    assert isinstance(FenceMiddleware(wsgi, store=store), WsgiFence)
    assert isinstance(FenceMiddleware(wsgi, store=store, interface="asgi"), AsgiFence)
    with pytest.raises(InvalidRequest):
        FenceMiddleware(wsgi, store=store, interface="cgi")
    with pytest.raises(InvalidRequest, match="blocking client"):
        FenceMiddleware(wsgi, store=RedisFence(redis.asyncio.Redis.from_url(redis_server.url)))


def test_a_stale_websocket_is_closed_before_the_application_sees_it(tmp_path: Path) -> None:
    FileFence(tmp_path).check(18, resource="users")
    answers: list[Any] = []

    async def send(message: Any) -> None:
        answers.append(message)

    middleware: Any = FenceMiddleware(echo, store=FileFence(tmp_path))
    lines = [(b"fencing-resource", b"users"), (b"fencing-token", b"17")]
    asyncio.run(middleware({"type": "websocket", "path": "/", "headers": lines}, None, send))

    assert [(answer["type"], answer["code"]) for answer in answers] == [("websocket.close", 1008)]


def test_fences_can_be_imported_without_any_driver() -> None:
    drivers = ["redis", "psycopg", "pymysql", "boto3", "sqlalchemy", "httpx", "requests"]
    blocked = f"import sys; sys.modules.update(dict.fromkeys({drivers}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked}; import holdfast.fence"], capture_output=True, text=True, env=os.environ
    )

    assert done.returncode == 0, done.stderr
