"""The client's side of a fenced HTTP service: every request carries the current grant's token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.fence.token import Token, present

R = TypeVar("R")


class FenceAuth:
    """An `auth=` object for httpx and for requests that adds `Fencing-Resource` and `Fencing-Token`.

    The grant is looked at for each request: one that was lost raises LockLost, and nothing is sent.
    Give a function instead of a grant where the grant changes, as in an election.
    """

    def __init__(self, grant: Token | Callable[[], Token], *, resource: str | None = None) -> None:
        self._grant, self._resource = grant, resource

    def __call__(self, request: R) -> R:
        """Add the headers to a request of either library."""
        grant: Any = self._grant() if callable(self._grant) else self._grant
        headers: Any = request.headers  # type: ignore[attr-defined]
        for name, value in present(grant, self._resource).headers.items():
            headers[name] = value
        return request
