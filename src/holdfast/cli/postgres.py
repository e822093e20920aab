"""`holdfast postgres ddl`: what an administrator runs where the application's role may not create tables."""

from __future__ import annotations

import click

from holdfast.cli import screen
from holdfast.cli.options import json_option
from holdfast.engines.postgres.address import DEFAULT_SCHEMA, check_schema
from holdfast.engines.postgres.schema import ddl as make_ddl
from holdfast.errors import InvalidRequest


@click.group(short_help="Prepare a PostgreSQL for the lock table.")
def postgres() -> None:
    """Prepare a PostgreSQL for the lock table."""


@postgres.command()
@click.option("--schema", default=DEFAULT_SCHEMA, show_default=True, help="The schema to keep the lock table in.")
@click.option("--role", help="The role that the clients use: it gets the rights that they need, and no more.")
@json_option
def ddl(schema: str, role: str | None, as_json: bool) -> None:
    """Print the SQL that makes the lock table.

    \b
    Example:
      holdfast postgres ddl --role app | psql -v ON_ERROR_STOP=1 postgresql://admin@db/app
    """
    if role == "":
        raise InvalidRequest("role", role, "the name of a role of the database")
    sql = make_ddl(check_schema(schema), role)
    if as_json:
        screen.document({"schema": schema, "role": role, "sql": sql})
    else:
        screen.verbatim(sql)
