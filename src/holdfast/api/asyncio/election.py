"""At most one leader, awaited."""

from __future__ import annotations

from functools import partial

from holdfast.api.asyncio.grant import Grant
from holdfast.api.asyncio.lock import Lock
from holdfast.api.asyncio.stream import Stream
from holdfast.api.waiting import Wait
from holdfast.locks import election
from holdfast.locks.client import Client as Core
from holdfast.locks.spec import Spec
from holdfast.model import Leader


class Election:
    """At most one leader, which stands for a value."""

    def __init__(self, client: Core, spec: Spec) -> None:
        self._client, self._spec = client, spec
        self._lock = Lock(client, spec)
        self._grant: Grant | None = None

    async def campaign(self, wait: Wait = ...) -> Grant:
        """Stand in line to lead. The grant is the right to lead, until it is released or lost."""
        self._grant = await self._lock.acquire(wait)
        return self._grant

    async def leader(self) -> Leader | None:
        """Who leads now."""
        return await election.leader(self._client, self._spec.name)

    def observe(self) -> Stream[Leader | None]:
        """Who leads, now and after every change."""
        return Stream(partial(election.observe, self._client, self._spec.name))

    async def resign(self) -> None:
        """Stop leading. Nothing happens if we do not lead."""
        self._client.io.check_caller()
        grant = self._grant
        if grant is not None and grant.valid:
            await grant.release()
        if self._grant is grant:
            self._grant = None
