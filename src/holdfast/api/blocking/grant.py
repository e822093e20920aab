"""What is held."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import cast

from holdfast.api.leaving import WithExit, entering
from holdfast.errors import HoldfastError, LockLost
from holdfast.locks import handing, several
from holdfast.locks.client import Client as Core
from holdfast.locks.grant import GrantView
from holdfast.locks.hold import Entry
from holdfast.locks.release import release
from holdfast.locks.unsettled import Scope, Unsettled
from holdfast.runtime.blocking import run


class Grant(GrantView):
    __doc__ = GrantView.__doc__
    __slots__ = ()

    @property
    def lost(self) -> threading.Event:
        """Set once the grant is lost."""
        return cast(threading.Event, self._hold.lost_event())

    def renew(self) -> None:
        """Send a heartbeat now and wait for its answer; it serves everything that this client holds.

        LockLost if the engine does not have this grant any more, also if it came back with an older state.
        """
        self.check()
        run(self._client.renew(self._hold))
        self.check()

    def release(self) -> None:
        """Give the lock back. LockLost if it was lost before, NotHeld if it was released before."""
        run(release(self._client, self._entry))

    def hand_over(self) -> str:
        """A secret text by which another client may adopt this grant; this one holds until then."""
        self.check()
        return run(handing.hand_over(self._client, self._hold))

    __exit__ = WithExit()

    def __enter__(self) -> Grant:
        entering(self).entries = entries_of(self)
        return self

    def _leave(self, _: Scope, error: BaseException | None) -> None:
        end_body(self, error)

    def _record(self) -> Unsettled:
        return self._client.unsettled


def end_body(grant: Grant | Grants, error: BaseException | None) -> None:
    """Release at the end of a `with`. What the body raised comes first; a loss is noted on it."""
    try:
        grant.release()
    except BaseException as problem:
        if any(entry.is_open for entry in entries_of(grant)):
            # An interrupt, which has come before the release began.
            with suppress(HoldfastError):
                grant.release()
        if error is None or not isinstance(problem, LockLost):
            raise
        error.add_note(str(problem))


def entries_of(grant: Grant | Grants) -> list[Entry]:
    """What is given back by releasing this."""
    return [grant._entry] if isinstance(grant, Grant) else [each._entry for each in grant.values()]


class Grants(Mapping[str, Grant]):
    """Several grants that are released and lost together."""

    def __init__(self, client: Core, entries: list[Entry], on_lost: Callable[[Grant], object] | None = None) -> None:
        self._client, self._holds = client, [entry.held for entry in entries]
        self._grants = {entry.claim.name: Grant(client, entry, on_lost) for entry in entries}
        self._ties = several.tie_together(client, self._holds)

    def __getitem__(self, name: str) -> Grant:
        return self._grants[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._grants)

    def __len__(self) -> int:
        return len(self._grants)

    @property
    def valid(self) -> bool:
        """Whether all of them are held now."""
        return all(grant.valid for grant in self.values())

    def check(self) -> None:
        """Raise LockLost or NotHeld unless all of them are held now."""
        for grant in self.values():
            grant.check()

    def release(self) -> None:
        """Give all of them back. LockLost if they were lost before."""
        self._client.io.check_caller()
        for untie in self._ties:
            untie()
        run(several.release_all(self._client, list(self.values())))

    __exit__ = WithExit()

    def __enter__(self) -> Grants:
        entering(self).entries = entries_of(self)
        return self

    def _leave(self, _: Scope, error: BaseException | None) -> None:
        end_body(self, error)

    def _record(self) -> Unsettled:
        return self._client.unsettled
