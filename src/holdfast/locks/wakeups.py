"""Who waits for which notice."""

from __future__ import annotations

from holdfast.runtime.calls import new_lock
from holdfast.runtime.io import Io, Signal


class Wakeups:
    """Signals by claim or watch. A notice that comes before anybody waits is kept for whoever does."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._expected: dict[str, Signal | None] = {}
        self._early: set[str] = set()

    def expect(self, subject: str) -> None:
        """Keep notices for `subject` from now on."""
        self._expected[subject] = None

    def signal(self, subject: str, io: Io) -> Signal:
        """The signal of `subject`, set already if its notice was early."""
        with self._lock:
            signal = self._expected[subject]
            if signal is None:
                signal = self._expected[subject] = io.signal()
                if subject in self._early:
                    self._early.discard(subject)
                    signal.set()
            return signal

    def ring(self, subject: str) -> None:
        """A notice came. One that nobody expects is for a claim that is gone."""
        with self._lock:
            signal = self._expected.get(subject)
            if signal is None:
                self._early.add(subject)
                # Looked at after it was kept, as `forget` looks in the other order: nothing is kept for nobody.
                if subject not in self._expected:
                    self._early.discard(subject)
                return
        signal.set()

    def ring_all(self) -> None:
        """Something happened to everybody: the session is over, or the client is closing."""
        for subject in list(self._expected):
            self.ring(subject)

    def forget(self, subject: str) -> None:
        """Nobody waits for `subject` any more."""
        self._expected.pop(subject, None)
        if self._early:
            with self._lock:
                self._early.discard(subject)
