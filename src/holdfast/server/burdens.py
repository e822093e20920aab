"""Whose connection goes first when all of them together take too much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.server.connection import Connection


def heaviest(connections: Iterable[Connection], weight: Callable[[Connection], int]) -> Connection | None:
    """The heaviest connection of the user whose connections weigh most: nobody pays for another user's.

    None if nobody weighs anything.
    """
    weights = [(weight(one), one) for one in connections]
    users: Counter[str] = Counter()
    for size, one in weights:
        users[one.user.name] += size
    if not any(users.values()):
        return None
    worst = users.most_common(1)[0][0]
    return max((pair for pair in weights if pair[1].user.name == worst), key=lambda pair: (pair[0], pair[1].id))[1]
