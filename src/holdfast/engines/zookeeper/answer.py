"""What came of a request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any


class Answer:
    """kazoo's AsyncResult, without the condition: nobody here waits for one but by being called back.

    Each is called back once. kazoo's calls all of them again when another asks after the answer has come.
    There is no lock that an interrupted caller could keep from the thread that fetches the answer.
    """

    __slots__ = ("_callbacks", "_ready", "exception", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: Exception | None = None
        self._callbacks: deque[Callable[[Answer], object]] = deque()
        self._ready = False

    def ready(self) -> bool:
        return self._ready

    def set(self, value: Any = None) -> None:
        """It was done, with this result."""
        self._end(value, None)

    def set_exception(self, exception: Exception) -> None:
        """It was refused, or got lost."""
        self._end(None, exception)

    def _end(self, value: Any, exception: Exception | None) -> None:
        self.value, self.exception = value, exception
        self._ready = True
        self._call_back()

    def _call_back(self) -> None:
        """Call each callback once: it is taken out by one step, in this thread or another one.

        No lock is held: a signal handler may come upon the caller here, and wait for the connection's thread.
        """
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return  # another thread was faster
            callback(self)

    def get(self, *_: Any, **__: Any) -> Any:
        """For kazoo, which asks when it has been called back."""
        assert self._ready, "nobody may wait here: it would be in the thread that fetches the answer"
        if self.exception is not None:
            raise self.exception
        return self.value

    def rawlink(self, callback: Callable[[Answer], object]) -> None:
        """Call this when it is ready; at once if it is."""
        self._callbacks.append(callback)
        # Looked at after it was added: an answer that came before that has not seen it.
        if self._ready:
            self._call_back()
