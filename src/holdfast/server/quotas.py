"""What is left of the limits on what the table keeps: of all users together, of each user, and of each session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.table import Dictionary
from holdfast.core.table.rows import Session
from holdfast.core.table.usage import Account, cell_size, claim_size, session_size
from holdfast.model import Claim
from holdfast.server.limits import Limits, share_of
from holdfast.server.wire_error import LimitReached

if TYPE_CHECKING:
    from holdfast.server.service import Service

ADVICE = {
    "sessions": "close some, or wait until they run out",
    "claims": "release or leave some first, also those that are gone",
    "claim_bytes": "release some first, or use shorter names, owners and notes",
    "watches": "HF.UNWATCH one first",
    "prefix_watches": "HF.UNWATCH one first",
    "cells": "delete some first",
    "cell_bytes": "delete some cells first",
    "cell_writes": "much is being written, try again later",
}
"""What to do where a limit is reached."""


class Quotas:
    """Admits what makes the table grow. `LimitReached` names the limit, and nothing is done."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def _limits(self) -> Limits:
        return self._service.limits

    @property
    def _table(self) -> Dictionary:
        return self._service.table

    def session(self, session: Session) -> None:
        """Admit a session that is not there yet."""
        mine = self._table.usage.of(session.user)
        self._need("sessions", mine, 1)
        self._need("claim_bytes", mine, session_size(session))

    def claim(self, claim: Claim) -> None:
        """Admit a claim. What is there already, or was taken away and is remembered, does not grow."""
        table, limits = self._table, self._limits
        mine, stones = table.by_session.get(claim.session, ()), table.tombstones.get(claim.session, ())
        if claim.id in mine or claim.id in stones:
            return
        account = table.usage.of_session(claim.session)
        self._need("claims", account, 1)
        self._need("claim_bytes", account, claim_size(claim))
        if len(mine) + len(stones) >= limits.claims_per_session:
            raise LimitReached("claims_per_session", limits.claims_per_session, ADVICE["claims"])

    def claims_left(self, session: str) -> int:
        """How many plain claims the session may make now, at least: there may be more later, never fewer."""
        service = self._service
        limits, table, longest = service.limits, service.table, service.terms.longest
        total = table.usage.total
        mine = total.claims  # as nearly always: no session can have more
        left = min(limits.claims - mine, (limits.claim_bytes - total.claim_bytes) // longest)
        if left <= 0 or not service.store.has_room():
            return 0
        if service.users.required:
            account = table.usage.of_session(session)
            left_in_bytes = (limits.claim_bytes_per_user - account.claim_bytes) // longest
            left = min(left, limits.claims_per_user - account.claims, left_in_bytes)
        if mine >= limits.claims_per_session:
            mine = len(table.by_session.get(session, ())) + len(table.tombstones.get(session, ()))
        return min(left, limits.claims_per_session - mine)

    def may_remember(self, session: str) -> bool:
        """Whether one more withdrawn claim of the session may be remembered."""
        table, most = self._table, self._limits.withdrawn_per_session
        account = table.usage.of_session(session)
        reached = self._reached("withdrawn", table.usage.total.withdrawn, account.withdrawn, 1, 1)
        return reached is None and len(table.tombstones.get(session, ())) < most

    def watch(self, session: str, wide: bool) -> None:
        """Admit a watch that is not there yet; `wide`: of many names."""
        limits, table = self._limits, self._table
        if table.mail.of(session) >= limits.watches_per_session:
            raise LimitReached("watches_per_session", limits.watches_per_session, ADVICE["watches"])
        account = table.usage.of_session(session)
        if wide:
            self._need("prefix_watches", account, 1)
        self._need("watches", account, 1)

    def cell(self, user: str, kind: str, name: str, value: bytes) -> None:
        """Admit the value of a cell. A cell counts for the user who wrote it last."""
        table = self._table
        account, size = table.usage.of(user), cell_size(name, value)
        former = table.cells.get((kind, name))
        count, before = (0, 0) if former is None else (1, cell_size(name, former.value))
        own = former is not None and former.user == user
        self._need("cells", account, 1 - count, 1 - count * own)
        self._need("cell_bytes", account, size - before, size - before * own)
        waiting, more = self._service.batches.cell_writes, len(value)
        if waiting:
            # One value may always be written, however large: no user could ever write it otherwise.
            self._admit("cell_writes", waiting.total(), waiting[user], more, more if waiting[user] else 0)

    def _need(self, limit: str, account: Account, more: int, more_of_user: int | None = None) -> None:
        """Refuse what grows beyond the limit of all, or beyond the share of the user who has this account."""
        own = more if more_of_user is None else more_of_user
        self._admit(limit, getattr(self._table.usage.total, limit), getattr(account, limit), more, own)

    def _admit(self, limit: str, of_all: int, of_user: int, more: int, own: int) -> None:
        reached = self._reached(limit, of_all, of_user, more, own)
        if reached is not None:
            raise LimitReached(reached, getattr(self._limits, reached), ADVICE[limit])

    def _reached(self, limit: str, of_all: int, of_user: int, more: int, own: int) -> str | None:
        """Which limit does not allow so much more: the share of the user, that of all, or None."""
        limits, share = self._limits, share_of(limit)
        if own > 0 and self._service.users.required and of_user + own > getattr(limits, share):
            return share
        return limit if more > 0 and of_all + more > getattr(limits, limit) else None
