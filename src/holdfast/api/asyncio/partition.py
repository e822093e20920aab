"""A member of a group that shares keys, awaited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.locks.partition import PartitionFront
from holdfast.model import Epoch


class Partition:
    """One member of a group whose keys have one owner each. A member from `join`, or the start of its `async with`.

    Two members can think that they own a key while word gets around: show `token(key)` to a
    fence where that matters. Only `join` and `leave` send anything.
    """

    def __init__(self, front: PartitionFront) -> None:
        self._front = front

    @property
    def member(self) -> str:
        """Our name in the group."""
        return self._front.member

    @property
    def epoch(self) -> Epoch | None:
        """Who shares the keys, with the token of that; None while our own place is in doubt."""
        return self._front.epoch()

    async def join(self) -> None:
        """Become a member. One whose session ended comes back by itself, under a new epoch."""
        await self._front.join()

    async def leave(self) -> None:
        """Stop being a member; our keys go to the others."""
        await self._front.leave()

    def owns(self, key: str) -> bool:
        """Whether we own a key now; False while that is in doubt."""
        return self._front.owns(key)

    def token(self, key: str) -> int:
        """The token to show to the fence of what a key stands for; NotHeld unless we own the key now."""
        return self._front.token(key)

    def owner_of(self, key: str) -> str | None:
        """The member that owns a key; None while our own place is in doubt."""
        return self._front.owner_of(key)

    def members(self) -> tuple[str, ...]:
        """Who shares the keys; nobody while our own place is in doubt."""
        return self._front.members()

    def mine(self, keys: Iterable[str]) -> Iterator[str]:
        """Those keys that we own, each looked at when it is asked for."""
        return self._front.mine(keys)

    async def __aenter__(self) -> Partition:
        await self.join()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()
