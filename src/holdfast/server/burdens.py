"""Whose connection goes first when all of them together take too much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.server.connection import Connection


def heaviest_first(
    connections: Iterable[Connection], weight: Callable[[Connection], int]
) -> Iterator[tuple[Connection, int]]:
    """Connections and their weights, each time the heaviest of the user whose connections weigh most then.

    Nobody pays for another user's. Those that weigh nothing are left out.
    """
    of_user: dict[str, list[tuple[int, int, Connection]]] = {}
    for one in connections:
        size = weight(one)
        if size:
            of_user.setdefault(one.user.name, []).append((size, one.id, one))
    users = [(-sum(size for size, _, _ in mine), name) for name, mine in of_user.items()]
    heapify(users)
    for mine in of_user.values():
        mine.sort()
    while users:
        total, name = heappop(users)
        size, _, one = of_user[name].pop()
        yield one, size
        if of_user[name]:
            heappush(users, (total + size, name))
