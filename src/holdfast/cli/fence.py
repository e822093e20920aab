"""`holdfast fence`: what makes resources refuse an older token."""

from __future__ import annotations

import click

from holdfast.cli import screen
from holdfast.cli.options import json_option
from holdfast.fence.sql_statements import DEFAULT_TABLE, Dialect
from holdfast.fence.sql_triggers import create_statements, drop_statements, script

DIALECTS: dict[str, Dialect] = {"postgresql": "postgresql", "sqlite": "sqlite", "mariadb": "mysql", "mysql": "mysql"}


@click.group()
def fence() -> None:
    """Make resources refuse an older token."""


@fence.command()
@click.option("--dialect", type=click.Choice(list(DIALECTS)), required=True, help="Which database.")
@click.option("--table", metavar="TABLE", help="The table to fence.  [default: only the fence's own table]")
@click.option("--resource", metavar="KEY", help="The resource key of its fence.  [default: the table's name]")
@click.option("--fence-table", default=DEFAULT_TABLE, show_default=True, help="Where the highest tokens are kept.")
@click.option("--drop", is_flag=True, help="Print what takes the fence away again.")
@json_option
def ddl(dialect: str, table: str | None, resource: str | None, fence_table: str, drop: bool, as_json: bool) -> None:
    """Print DDL by which a database itself refuses an older token.

    Every write to TABLE needs a token in the database session, whoever writes: a write without one,
    or with an older one than was seen, is refused by a trigger. In Python: SqlFence().present(...).

    \b
    Example:
      holdfast fence ddl --dialect postgresql --table accounts | psql
    """
    chosen = DIALECTS[dialect]
    if drop:
        parts = drop_statements(chosen, table, fence_table)
    else:
        parts = create_statements(chosen, table, resource, fence_table)
    if as_json:
        screen.document({"dialect": dialect, "table": table, "statements": parts})
    else:
        screen.verbatim(script(chosen, parts))
