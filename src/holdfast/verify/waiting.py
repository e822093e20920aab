"""Since when the claim of an acquire is known to stand in line, whether it was granted in the end or given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.locks.client import Client
from holdfast.locks.session import Session
from holdfast.locks.spec import Spec
from holdfast.model import Claim


class Waiting:
    """Watches one acquire. An acquire may make several claims, one after the other: only the last one counts."""

    def __init__(self, client: Any, now: Callable[[], float]) -> None:
        self._core: Client = client._core
        self._now = now
        self._seen: list[tuple[float, set[str]]] = []
        self._claim = ""

    def told(self, _: object) -> None:
        """The client was told a place. Which of its claims it was for is told by who waits at that moment."""
        self._seen.append((self._now(), self._core.waiting.copy()))

    def since(self, claim: str) -> float | None:
        """Since when this claim is known to stand in line."""
        return next((at for at, claims in self._seen if claim in claims), None)

    def given_up(self) -> float | None:
        """The same for an acquire that was not granted, if its claim surely kept its place until now.

        While the session's own deadline has not passed, the engine has not ended it, nor what stands under it.
        """
        session, core = self._core.session, self._core
        if session is None or session.over is not None or not self._claim.startswith(f"{session.id}-"):
            return None
        return self.since(self._claim) if core.io.now() < session.deadline else None

    @staticmethod
    def watch(client: Any) -> None:
        """Let every acquire of this client that is watched know of the claims that it makes."""
        core: Client = client._core
        make = core.new_claim

        def new_claim(session: Session, spec: Spec, waits: bool, owner: str = "") -> Claim:
            claim = make(session, spec, waits, owner)
            watching = getattr(spec.on_wait, "__self__", None)
            if isinstance(watching, Waiting):
                watching._claim = claim.id
            return claim

        core.new_claim = new_claim  # type: ignore[method-assign]
