"""How things are shown: tables and colour on a terminal, aligned text in a pipe, JSON when asked."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.model import Party

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {
    "held": "green",
    "granted": "green",
    "waits": "yellow",
    "queued": "yellow",
    "expired": "red",
    "broken": "red",
    "deadlock": "bold red",
    "yes": "green",
    "no": "yellow",
}
"""Words that have a colour of their own."""


def as_json(value: object) -> str:
    """One JSON document on one line."""
    return json.dumps(value, ensure_ascii=False, sort_keys=False, default=_plain)


def _plain(value: object) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{value!r} has no place in JSON")


def on_terminal() -> bool:
    """Whether somebody looks at the output."""
    return sys.stdout.isatty()


def console(stderr: bool = False) -> Console:
    """A terminal that interprets nothing in what it is given."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def printable(text: str) -> str:
    """Text of others, which cannot move the cursor or break a line."""
    return "".join(
        char if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp") else repr(char)[1:-1] for char in text
    )


def seconds(value: float) -> str:
    """A duration as people say it."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def who(party: Party) -> str:
    """A holder or waiter in a few words."""
    return printable(party.who)


def how(party: Party, limit: int = 0) -> str:
    """In which way it holds or waits: `exclusive`, `shared subtree`, `permit 2 of 4`."""
    if limit:
        return f"1 of {limit}" if party.slot is None else f"permit {party.slot} of {limit}"
    return f"{party.mode} subtree" if party.subtree else party.mode


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows under headings."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if on_terminal():
        _rich_table(headings, cells)
        return
    widths = [max(map(_width, column)) for column in zip(headings, *cells, strict=True)]
    for row in ([heading.upper() for heading in headings], *cells):
        line = "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def _rich_table(headings: Sequence[str], cells: list[list[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        shown.add_column(heading, overflow="fold")
    for row in cells:
        shown.add_row(*(Text(cell, style=STYLES.get(cell.partition(" ")[0], "")) for cell in row))
    console().print(shown)


def _width(text: str) -> int:
    """How many columns a text takes in a fixed-width font."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def line(text: str, style: str = "") -> None:
    """One line, in colour on a terminal. It comes out at once."""
    if style and on_terminal():
        from rich.text import Text

        console().print(Text(text, style=style), soft_wrap=True)
    else:
        click.echo(text)
    sys.stdout.flush()
