"""What a connection to SQLite presents to triggers, in a box that its function `holdfast_token` looks into.

The function itself cannot be replaced while a cursor of the connection is open: a token could
then be neither presented nor taken away. So it is made once, and finds in the box what is told now.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from holdfast.fence.sql_connections import Database


class Box:
    """The token of one connection. Only the connection's own functions keep it: it goes when they do."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.told: str | None = None


_numbers = count(1)
_boxes: WeakValueDictionary[int, Box] = WeakValueDictionary()
"""By the number that a connection knows. A connection of sqlite3 takes neither attributes nor weak references."""


async def box_of(database: Database) -> Box:
    """The box of this connection, made when it is first asked for."""
    try:
        row = (await database.execute("SELECT holdfast_box()", {})).row
    except Exception as error:
        if "no such function" not in str(error):
            raise
        return await _made(database)
    return _boxes[row[0]]


async def _made(database: Database) -> Box:
    box = Box()
    _boxes[box.number] = box

    def token() -> Any:
        return box.told

    def number() -> int:
        return box.number

    await database.register("holdfast_token", token)
    await database.register("holdfast_box", number)
    return box
