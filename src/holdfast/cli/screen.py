"""All that the commands print: tables and colour on a terminal, aligned text in a pipe, JSON on request.

Nothing else in `holdfast.cli` writes to stdout or stderr. What is written here cannot move the cursor,
reorder the text or forge a line, whatever other clients named themselves. An error is raised where
stdout cannot be written to; `main` reports it.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from holdfast.model import Party
from holdfast.text import as_json, printable

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


def on_terminal() -> bool:
    """Whether somebody looks at the output."""
    return sys.stdout.isatty()


def console(stderr: bool = False) -> Console:
    """A terminal that interprets nothing in what it is given."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def seconds(value: float) -> str:
    """A duration as people say it."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


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
        line("  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip())


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


def line(text: str = "", style: str = "") -> None:
    """One line, in colour on a terminal. It is flushed at once."""
    text = printable(text)
    if style and on_terminal():
        from rich.text import Text

        console().print(Text(text, style=style), soft_wrap=True)
    else:
        click.echo(text)
    sys.stdout.flush()


def block(text: str) -> None:
    """Several lines of our own text."""
    for each in text.split("\n"):
        line(each)


def document(value: object) -> None:
    """One JSON document on one line."""
    click.echo(as_json(value))
    sys.stdout.flush()


def verbatim(text: str) -> None:
    """Text for another program, such as a shell or psql: not one character is changed."""
    click.echo(text, nl=not text.endswith("\n"))
    sys.stdout.flush()


def tell(text: str) -> None:
    """One line on stderr."""
    click.echo(printable(text), err=True)


def tell_document(value: object) -> None:
    """One JSON document on one line, on stderr."""
    click.echo(as_json(value), err=True)


def progress(text: str) -> None:
    """Replace the present line of a terminal on stderr."""
    click.echo(f"\r{printable(text)}", nl=False, err=True)
