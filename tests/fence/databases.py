"""The databases of the tests: how each is connected to, and how its SQL differs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar

import psycopg
import pymysql

from holdfast.fence import SqlFence
from holdfast.fence.sql_statements import Dialect


class SqlDatabase:
    """One database; every `connect` is a connection of its own, in the driver's default mode."""

    dialect: ClassVar[Dialect]
    mark: ClassVar[str]
    sqlalchemy_url: str

    def connect(self) -> Any:
        raise NotImplementedError

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A connection in a transaction that is committed at the end, and rolled back on an error."""
        with closing(self.connect()) as connection:
            try:
                yield connection
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def execute(self, connection: Any, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement with ? for parameters; its rows."""
        cursor = connection.cursor()
        if parameters:
            cursor.execute(statement.replace("?", self.mark), parameters)
        else:
            cursor.execute(statement)
        rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        cursor.close()
        return rows

    def create(self) -> None:
        with self.transaction() as connection:
            SqlFence().create(connection)


class Sqlite(SqlDatabase):
    dialect, mark = "sqlite", "?"

    def __init__(self, path: str) -> None:
        self.path, self.sqlalchemy_url = path, f"sqlite:///{path}"

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)


class Postgres(SqlDatabase):
    dialect, mark = "postgresql", "%s"

    def __init__(self, url: str) -> None:
        self.url, self.sqlalchemy_url = url, url.replace("postgresql:", "postgresql+psycopg:")

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url)


class MariaDb(SqlDatabase):
    dialect, mark = "mysql", "%s"

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.sqlalchemy_url = "mysql+pymysql://{user}:{password}@{host}:{port}/{database}".format_map(settings)

    def connect(self) -> Any:
        return pymysql.connect(**self.settings)
