"""Tokens from zxids: strictly increasing, and never ahead of the clock by more than a moment.

A zxid is the epoch of its leader in the high 32 bits, and a counter. Taken as it is, each new leader would put
tokens 71 minutes ahead of the microseconds at which the base of a namespace starts, and a namespace that is made
later in another ensemble would begin below them. So the namespace keeps where the tokens of each epoch start, and
how far they may go: the next epoch starts just behind that. Both are in one node, which is changed by compare and set.
"""

from __future__ import annotations

from typing import Any, NamedTuple

EPOCH_BITS = 32
ROOM = 2**18
"""How many tokens are set aside at once: what an election costs. As microseconds they are a quarter of a second."""
MOST_EPOCHS = 1_000
"""How many epochs are kept, in about 35 bytes each. What was written last in an earlier one has a version still."""


class Epoch(NamedTuple):
    """The tokens of one leader: `start` plus the counter, for counters up to `upto`."""

    number: int
    start: int
    upto: int


class TokenTable(NamedTuple):
    """What a namespace keeps of its tokens. Of two copies of different age, each gives the same tokens or none."""

    base: int
    epochs: tuple[Epoch, ...]

    @classmethod
    def begun(cls, base: int, zxid: int) -> TokenTable:
        """For a namespace that was made at this zxid."""
        epoch, counter = _split(zxid)
        return cls(base, (Epoch(epoch, -counter, counter + ROOM),))

    @classmethod
    def read(cls, kept: dict[str, Any]) -> TokenTable:
        return cls(kept["base"], tuple(Epoch(*epoch) for epoch in kept["epochs"]))

    def as_dict(self) -> dict[str, Any]:
        return {"base": self.base, "epochs": [list(epoch) for epoch in self.epochs]}

    def token(self, zxid: int) -> int | None:
        """The number of a write, which no other write has; None if none was set aside for it."""
        number, counter = _split(zxid)
        for epoch in reversed(self.epochs):
            if epoch.number == number and counter <= epoch.upto:
                return self.base + epoch.start + counter
        return None

    def version(self, zxid: int) -> int | None:
        """The same for what was written last, also if nothing was set aside in time; None if that can still be done.

        All writes without a number get the one before the first of the next epoch that is kept. Of one node only
        the last of them is ever seen: whoever had seen an earlier one would have set numbers aside.
        """
        number, _ = _split(zxid)
        found = self.token(zxid)
        if found is None:
            later = next((epoch for epoch in self.epochs if epoch.number > number), None)
            found = None if later is None else self.base + later.start - 1
        return found

    def estimate(self, zxid: int) -> int:
        """The version, or what it will be if nothing comes between."""
        found = self.version(zxid)
        if found is None:
            number, counter = _split(zxid)
            last = self.epochs[-1]
            found = self.base + counter + (last.start if number == last.number else _start_after(last))
        return found

    def is_short(self, zxid: int) -> bool:
        """Whether more should be set aside, seen from a write that was made just now."""
        number, counter = _split(zxid)
        last = self.epochs[-1]
        return number > last.number or (number == last.number and counter > last.upto - ROOM // 2)

    def with_room(self, zxid: int) -> TokenTable:
        """More set aside, so that a write of the last epoch or a later one has a number."""
        number, counter = _split(zxid)
        last = self.epochs[-1]
        assert number >= last.number
        if number == last.number:
            return self._replace(epochs=(*self.epochs[:-1], last._replace(upto=counter + ROOM)))
        epochs = (*self.epochs, Epoch(number, _start_after(last), counter + ROOM))
        return self._replace(epochs=epochs[-MOST_EPOCHS:])


def _start_after(last: Epoch) -> int:
    """The start of an epoch: one number is left between, for writes that got none in time."""
    return last.start + last.upto + 2


def _split(zxid: int) -> tuple[int, int]:
    return zxid >> EPOCH_BITS, zxid & (2**EPOCH_BITS - 1)
