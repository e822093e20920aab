"""What a lock object has entered by `with` and not left yet."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from holdfast.runtime.task import running_task

G = TypeVar("G")


class Entered(Generic[G]):
    """Grants by who entered: one lock object serves many threads and tasks at once.

    A `with` may be left by somebody else than entered it (a generator that is closed elsewhere,
    a dependency that ends in another thread): whoever has entered nothing leaves what was
    entered last.
    """

    def __init__(self) -> None:
        self._grants: list[tuple[object, G]] = []
        self._lock = threading.Lock()

    def push(self, grant: G) -> None:
        """Keep a grant for the end of the `with`."""
        with self._lock:
            self._grants.append((who(), grant))

    def pop(self) -> G:
        """The grant whose `with` ends now."""
        me = who()
        with self._lock:
            mine = [at for at, (entered_by, _) in enumerate(self._grants) if entered_by == me]
            return self._grants.pop(mine[-1] if mine else -1)[1]


def who() -> object:
    """The running task, else the thread."""
    return running_task() or threading.get_ident()
