"""What is done around a fork, in order: background threads end first, then connections are let go.

Python runs the functions of `os.register_at_fork` in the reverse order of the imports. Here the order is fixed: a
thread that still works would need the connection that is let go.
"""

from __future__ import annotations

import os
from collections.abc import Callable

THREADS, CONNECTIONS = 0, 1
"""The stages, in the order in which a fork goes through them; afterwards the parent goes through them backwards."""

_before: list[tuple[int, Callable[[], None]]] = []
_after: list[tuple[int, Callable[[], None]]] = []


def around(stage: int, before: Callable[[], None], after_in_parent: Callable[[], None]) -> None:
    """Call these around every fork of this process. `after_in_parent` is called after a fork that failed, too."""
    _before.append((stage, before))
    _before.sort(key=lambda entry: entry[0])
    _after.append((stage, after_in_parent))
    _after.sort(key=lambda entry: -entry[0])


def _run(hooks: list[tuple[int, Callable[[], None]]]) -> None:
    for _, hook in hooks:
        hook()


os.register_at_fork(before=lambda: _run(_before), after_in_parent=lambda: _run(_after))
