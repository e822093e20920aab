"""How much the values of cells take together."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.table.rows import Cell

Name = tuple[str, str]


class CellRoom:
    """Bytes of all values. The table has the values; this adds them up without looking at all of them."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._sizes = {(cell.kind, cell.name): len(cell.value) for cell in cells}
        self.total = sum(self._sizes.values())

    def after(self, key: Name, size: int) -> int:
        """The total if this cell had that size."""
        return self.total - self._sizes.get(key, 0) + size

    def put(self, key: Name, size: int) -> None:
        """A cell has a value of that size now."""
        self.total = self.after(key, size)
        self._sizes[key] = size

    def drop(self, key: Name) -> None:
        """A cell is gone."""
        self.total -= self._sizes.pop(key, 0)
