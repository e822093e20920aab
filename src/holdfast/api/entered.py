"""What a lock object has entered by `with` and not left yet."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from holdfast.locks.client import Client
from holdfast.runtime.calls import new_lock

G = TypeVar("G")


class Entered(Generic[G]):
    """Grants by who entered: one lock object serves many threads and tasks at once.

    A `with` may be left by somebody else than entered it (a generator that is closed elsewhere,
    a dependency that ends in another thread): whoever has entered nothing leaves what was
    entered last.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._grants: list[tuple[object, G]] = []
        self._lock = new_lock()

    def push(self, grant: G) -> None:
        """Keep a grant for the end of the `with`."""
        with self._lock:
            self._grants.append((self._who(), grant))

    def pop(self) -> G:
        """The grant whose `with` ends now."""
        me = self._who()
        with self._lock:
            if len(self._grants) == 1:
                return self._grants.pop()[1]
            mine = [at for at, (entered_by, _) in enumerate(self._grants) if entered_by == me]
            return self._grants.pop(mine[-1] if mine else -1)[1]

    def _who(self) -> object:
        """The running task, else the thread."""
        return self._client.io.task() or threading.get_ident()
