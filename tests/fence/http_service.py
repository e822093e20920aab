"""A counter behind HTTP: `/fenced` needs a token, `/unfenced` does not.

The tokens and the value live in one SQLite file, so that they outlast the process that serves.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast.errors import StaleToken
from holdfast.fence import FenceMiddleware, Presented, SqlFence, SqlStore

PATH = Path.cwd() / "service.db"


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(PATH, timeout=30)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


with closing(connect()) as database, database:
    SqlFence().create(database)
    database.execute("CREATE TABLE IF NOT EXISTS counter (value INTEGER, asked INTEGER)")
    database.execute("INSERT INTO counter SELECT 0, 0 WHERE NOT EXISTS (SELECT 1 FROM counter)")


def serve(method: str, path: str, presented: Presented | None, content: bytes) -> tuple[int, Any]:
    """The application itself: PUT writes, and GET of `/fenced/counter` reads, under the token that was handed on."""
    with closing(connect()) as connection, connection:
        try:
            if presented is not None and (method != "GET" or path == "/fenced/counter"):
                SqlFence("holdfast_fence").check(connection, presented, resource="written//0")
        except StaleToken as stale:
            return 409, {"late": stale.highest}
        if method != "GET":
            connection.execute("UPDATE counter SET value = ?, asked = asked + 1", (int(content),))
        value, asked = connection.execute("SELECT value, asked FROM counter").fetchone()
    token = None if presented is None else [presented.resource, presented.token, presented.shared]
    return 200, {"value": value, "asked": asked, "token": token}


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    content, more = b"", True
    while more:
        message = await receive()
        content, more = content + message.get("body", b""), message.get("more_body", False)
    status, answer = serve(scope["method"], scope["path"], scope.get("holdfast.fence"), content)
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    content = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    status, answer = serve(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("holdfast.fence"), content)
    start_response(f"{status} Told", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


def protect(method: str, path: str) -> bool:
    return path.startswith(("/fenced", "/Übungen/")) and method != "GET"


app = FenceMiddleware(asgi, store=SqlStore(connect), protect=protect)
wsgi_app = FenceMiddleware(wsgi, store=SqlStore(connect), protect=protect)
