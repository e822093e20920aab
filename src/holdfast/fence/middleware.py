"""The fence in front of an HTTP service: stale requests never reach the application.

It judges arrivals only: a request that has passed can be overtaken before it writes. So the token is
handed on, as a Presented under `holdfast.fence` in the ASGI scope or the WSGI environ, for the fence
of whatever the application writes to.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from holdfast.errors import InvalidRequest, StaleToken
from holdfast.fence.settling import settled
from holdfast.fence.token import (
    RESOURCE_HEADER,
    TOKEN_HEADER,
    Presented,
    Token,
    parse_resource,
    parse_token,
)
from holdfast.runtime.blocking import run

KEY = "holdfast.fence"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class TokenStore(Protocol):
    """Where the highest tokens are kept: RedisFence, FileFence(folder), S3Fence, DynamoFence or SqlStore."""

    def check(self, grant: Token, *, resource: str | None = None, once: bool = False) -> Any: ...


@dataclass(frozen=True)
class Refusal:
    """An answer instead of the application's, as problem+json (RFC 9457)."""

    status: HTTPStatus
    detail: str
    facts: dict[str, Any]

    @property
    def body(self) -> bytes:
        """The answer's content."""
        problem = {"type": "about:blank", "title": self.status.phrase, "status": int(self.status)}
        return json.dumps(problem | {"detail": self.detail} | self.facts).encode()

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The answer's headers."""
        return [("Content-Type", "application/problem+json"), ("Content-Length", str(len(self.body)))]


def writes(method: str, path: str) -> bool:
    """Whether a request can change something, by its method. What is protected unless told otherwise."""
    return method not in SAFE_METHODS


class FenceMiddleware:
    """Wraps an ASGI or WSGI application; which of them it is, is seen from the application.

    A stale request gets 409, a protected one without headers 428, one with wrong headers 400. `protect`
    says, by method and path, which requests need a token. `resource` says by which key, again by
    method and path: a request that names another one is refused; without it the request's word is taken.
    """

    def __new__(cls, app: Any, *, interface: str | None = None, **_: Any) -> FenceMiddleware:
        if cls is not FenceMiddleware:
            return super().__new__(cls)
        chosen = interface or ("asgi" if _is_asgi(app) else "wsgi")
        if chosen not in ("asgi", "wsgi"):
            raise InvalidRequest("interface", interface, "an application is asgi or wsgi")
        return super().__new__(AsgiFence if chosen == "asgi" else WsgiFence)

    def __init__(
        self,
        app: Any,
        *,
        store: TokenStore,
        protect: Callable[[str, str], bool] = writes,
        resource: Callable[[str, str], str | None] | None = None,
        once: bool = False,
        interface: str | None = None,
    ) -> None:
        if isinstance(self, WsgiFence) and getattr(store, "asynchronous", False):
            raise InvalidRequest("store", store, "a WSGI application needs a store with a blocking client")
        self.app = app
        self._store, self._protect, self._resource, self._once = store, protect, resource, once

    def _read(self, method: str, path: str, headers: dict[str, list[str]]) -> Presented | Refusal | None:
        """What a request presents; a Refusal if it must not go on; None if it needs nothing."""
        resources, tokens = headers.get(RESOURCE_HEADER.lower(), []), headers.get(TOKEN_HEADER.lower(), [])
        if not resources or not tokens:
            if not self._protect(method, path) and not resources and not tokens:
                return None
            missing = f"this request needs {RESOURCE_HEADER} and {TOKEN_HEADER}: take the lock, and send its token"
            return Refusal(HTTPStatus.PRECONDITION_REQUIRED, missing, {})
        if len(resources) > 1 or len(tokens) > 1:
            return Refusal(HTTPStatus.BAD_REQUEST, f"one {RESOURCE_HEADER} and one {TOKEN_HEADER}, not several", {})
        try:
            presented = Presented(parse_resource(resources[0]), *parse_token(tokens[0]))
        except InvalidRequest as error:
            return Refusal(HTTPStatus.BAD_REQUEST, str(error), {})
        wanted = self._resource(method, path) if self._resource is not None else None
        if wanted is not None and wanted != presented.resource:
            facts = {"resource": presented.resource, "expected": wanted}
            return Refusal(HTTPStatus.BAD_REQUEST, f"this request goes to resource {wanted!r}", facts)
        return presented

    async def _judge(self, presented: Presented) -> Refusal | None:
        once = self._once and not presented.shared
        try:
            await settled(self._store.check(presented, once=once))
        except StaleToken as stale:
            facts = {"resource": stale.resource, "presented": stale.presented, "highest": stale.highest}
            return Refusal(HTTPStatus.CONFLICT, str(stale), facts)
        return None


class AsgiFence(FenceMiddleware):
    """The fence of an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        presented = self._read(scope.get("method", "WEBSOCKET"), scope["path"], headers)
        if isinstance(presented, Presented):
            refusal = await self._judge_aside(presented)
            scope = {**scope, KEY: presented}
        else:
            refusal = presented
        if refusal is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refusal.detail[:120]})
        else:
            lines = [(name.lower().encode(), value.encode()) for name, value in refusal.headers]
            await send({"type": "http.response.start", "status": int(refusal.status), "headers": lines})
            await send({"type": "http.response.body", "body": refusal.body})

    async def _judge_aside(self, presented: Presented) -> Refusal | None:
        """Ask the store: a blocking one in a thread, so that the loop goes on turning."""
        if getattr(self._store, "asynchronous", False):
            return await self._judge(presented)
        return await asyncio.to_thread(run, self._judge(presented))


class WsgiFence(FenceMiddleware):
    """The fence of a WSGI application."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one request."""
        headers = {
            name: [environ[key]]
            for name in (RESOURCE_HEADER.lower(), TOKEN_HEADER.lower())
            if (key := f"HTTP_{name.upper().replace('-', '_')}") in environ
        }
        presented = self._read(environ["REQUEST_METHOD"], _path(environ.get("PATH_INFO", "")), headers)
        refusal = run(self._judge(presented)) if isinstance(presented, Presented) else presented
        if refusal is not None:
            start_response(f"{int(refusal.status)} {refusal.status.phrase}", refusal.headers)
            return [refusal.body]
        if presented is not None:
            environ[KEY] = presented
        answer: Iterable[bytes] = self.app(environ, start_response)
        return answer


def _path(given: str) -> str:
    """The path as text. WSGI passes its bytes on as if each was a character; ASGI decodes them as UTF-8."""
    try:
        return given.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return given  # a server that has decoded it


def _is_asgi(app: Any) -> bool:
    return inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(getattr(app, "__call__", None))  # noqa: B004
