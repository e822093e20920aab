"""How much of the table each user takes: counts, and the bytes of texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast.core.table.rows import Cell, Session, Tombstone, Watch
from holdfast.model import Claim

PER_PATH = 256
"""Bytes that the index of subtrees takes for each path above a name, beside the path itself."""


@dataclass(slots=True)
class Account:
    """What one user takes, or all of them together. Each field has the name of the limit that bounds it."""

    sessions: int = 0
    claims: int = 0
    """Granted, in a queue, and those that are remembered after their end."""
    withdrawn: int = 0
    """Those that are remembered after their end."""
    claim_bytes: int = 0
    """Of the texts of claims and sessions."""
    watches: int = 0
    prefix_watches: int = 0
    cells: int = 0
    cell_bytes: int = 0
    """Of values and names."""


class Usage:
    """Adds up what is put into the table and takes off what is dropped. A session's claims are its user's."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self.total = Account()
        self.of_user: dict[str, Account] = {}
        """By the user's name; the empty name has what came in while there were no users."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and (self.total, self._taken()) == (other.total, other._taken())

    __hash__ = None  # type: ignore[assignment]

    def _taken(self) -> dict[str, Account]:
        return {user: account for user, account in self.of_user.items() if account != Account()}

    def of(self, user: str) -> Account:
        """The account of a user."""
        account = self.of_user.get(user)
        if account is None:
            account = self.of_user[user] = Account()
        return account

    def of_session(self, session: str) -> Account:
        """The account of the user who has opened the session."""
        found = self._sessions.get(session)
        return self.of("" if found is None else found.user)

    def claim(self, claim: Claim, count: int) -> None:
        """A claim came (1) or went (-1)."""
        self.count(claim, count, self.of_session(claim.session))

    def count(self, claim: Claim, count: int, account: Account) -> None:
        """The same where the account of its user is known."""
        size, total = count * claim_size(claim), self.total
        total.claims += count
        total.claim_bytes += size
        account.claims += count
        account.claim_bytes += size

    def tombstone(self, stone: Tombstone, count: int) -> None:
        """A claim that has ended is remembered, or forgotten."""
        self._tombstones(stone.session, count, count * len(stone.claim_id))

    def forget_tombstones(self, session: str, claim_ids: Collection[str]) -> None:
        """The claims that were remembered for a session are forgotten."""
        self._tombstones(session, -len(claim_ids), -sum(map(len, claim_ids)))

    def _tombstones(self, session: str, count: int, size: int) -> None:
        for account in (self.total, self.of_session(session)):
            account.claims += count
            account.withdrawn += count
            account.claim_bytes += size

    def session(self, session: Session, count: int) -> None:
        """A session came or went."""
        size = count * session_size(session)
        for account in (self.total, self.of(session.user)):
            account.sessions += count
            account.claim_bytes += size

    def watch(self, watch: Watch, count: int) -> None:
        """A watch came or went."""
        for account in (self.total, self.of_session(watch.session)):
            account.watches += count
            account.prefix_watches += 0 if watch.of_cell else count

    def cell(self, cell: Cell, count: int) -> None:
        """A cell came or went."""
        size = count * cell_size(cell.name, cell.value)
        for account in (self.total, self.of(cell.user)):
            account.cells += count
            account.cell_bytes += size


def text_size(text: str) -> int:
    """Bytes that the letters take in memory at most. It depends on the text alone: what is added is taken off."""
    return len(text) if text.isascii() else 4 * len(text)


def claim_size(claim: Claim) -> int:
    """Bytes of a claim's own texts, and of the paths above its name."""
    name = claim.name
    size = text_size(f"{claim.id}{claim.kind}{name}{claim.owner}{claim.thread}{claim.note}")
    return size + name.count("/") * (text_size(name) + PER_PATH) if "/" in name else size


def session_size(session: Session) -> int:
    """Bytes of a session's own texts."""
    return len(session.id) + text_size(session.app) + text_size(session.host)


def cell_size(name: str, value: bytes) -> int:
    """Bytes of a cell's name and value."""
    return text_size(name) + len(value)
