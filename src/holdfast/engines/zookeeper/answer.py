"""What came of a request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Answer:
    """kazoo's AsyncResult, without the condition: nobody here waits for one but by being called back.

    Each is called back once. kazoo's calls all of them again when another asks after the answer has come.
    """

    __slots__ = ("_callbacks", "_lock", "_ready", "exception", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: Exception | None = None
        self._callbacks: list[Callable[[Answer], object]] = []
        self._lock = threading.Lock()
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
        with self._lock:
            self.value, self.exception, self._ready = value, exception, True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def get(self, *_: Any, **__: Any) -> Any:
        """For kazoo, which asks when it has been called back."""
        assert self._ready, "nobody may wait here: it would be in the thread that fetches the answer"
        if self.exception is not None:
            raise self.exception
        return self.value

    def rawlink(self, callback: Callable[[Answer], object]) -> None:
        """Call this when it is ready; at once if it is."""
        with self._lock:
            if not self._ready:
                self._callbacks.append(callback)
                return
        callback(self)
