"""Who, inside a client, holds or waits.

Neither a thread id nor a thread-local nor the session alone identifies an owner: thread ids
come again, and tasks share threads. So threads and tasks get numbers of our own, which are
never reused, and a child task does not inherit its parent's.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from holdfast.core.names import check_name, legible
from holdfast.errors import InvalidRequest
from holdfast.runtime.task import LoopTask

_chosen: ContextVar[str | None] = ContextVar("holdfast-owner", default=None)
_numbers = itertools.count(1)
_threads = threading.local()
_tasks: dict[int, tuple[weakref.ref[LoopTask], str]] = {}
"""By the address of a task, which is another one's when it is gone: so the task itself is compared."""


@contextmanager
def owner(name: str) -> Iterator[None]:
    """Act as the owner `name` in this context: reentrancy and deadlock detection go by it."""
    if "/" in check_name(name, "owner"):
        raise InvalidRequest("owner", name, "an owner's name has no slash")
    reset = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(reset)


def current_owner(task: LoopTask | None) -> tuple[str, str]:
    """The owner that is running now (the chosen one, else the task, else the thread), and what people call it."""
    if task is not None:
        known = _tasks.get(id(task))
        if known is None or known[0]() is not task:
            known = _name_task(task)
        name = task.get_name()
        return _chosen.get() or known[1], name if name.isascii() else legible(name)
    try:
        own = _threads.id
    except AttributeError:
        own = _threads.id = f"t{next(_numbers)}"
    return _chosen.get() or own, legible(threading.current_thread().name)


def _name_task(task: LoopTask) -> tuple[weakref.ref[LoopTask], str]:
    """A number of its own for a task, forgotten with it."""
    address = id(task)

    def forget(gone: weakref.ref[LoopTask]) -> None:
        known = _tasks.get(address)
        if known is not None and known[0] is gone:
            del _tasks[address]

    named = _tasks[address] = (weakref.ref(task, forget), f"a{next(_numbers)}")
    return named
