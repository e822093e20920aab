"""At most one leader."""

from __future__ import annotations

from functools import partial

from holdfast.api.blocking.grant import Grant
from holdfast.api.blocking.lock import Lock
from holdfast.api.blocking.stream import Stream
from holdfast.api.waiting import Wait
from holdfast.locks import election
from holdfast.locks.client import Client as Core
from holdfast.locks.spec import Spec
from holdfast.model import Leader
from holdfast.runtime.blocking import run


class Election:
    """At most one leader, which stands for a value."""

    def __init__(self, client: Core, spec: Spec) -> None:
        self._client, self._spec = client, spec
        self._lock = Lock(client, spec)
        self._grant: Grant | None = None

    def campaign(self, wait: Wait = ...) -> Grant:
        """Stand in line to lead. The grant is the right to lead, until it is released or lost."""
        self._grant = self._lock.acquire(wait)
        return self._grant

    def leader(self) -> Leader | None:
        """Who leads now."""
        return run(election.leader(self._client, self._spec.name))

    def observe(self) -> Stream[Leader | None]:
        """Who leads, now and after every change."""
        return Stream(partial(election.observe, self._client, self._spec.name))

    def resign(self) -> None:
        """Stop leading. Nothing happens if we do not lead."""
        self._client.io.check_caller()
        grant = self._grant
        if grant is not None and grant.valid:
            grant.release()
        if self._grant is grant:
            self._grant = None
