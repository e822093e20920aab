"""A counter in each kind of resource: read, then write, fenced by a token or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Protocol

from holdfast.errors import StaleToken
from holdfast.fence import DynamoFence, FenceAuth, FileFence, RedisFence, S3Fence, SqlFence

KEY = "counter"


class Counter(Protocol):
    """One number. `create` is called once, before any process reads it."""

    def create(self) -> None: ...
    def close(self) -> None: ...
    def read(self, token: int | None = None) -> int:
        """Read; under a token, so that nobody with a lower one can write any more, or without a fence."""
        ...

    def write(self, value: int, token: int | None) -> None:
        """Write under a token, or without a fence if there is none."""


class SqlCounter:
    """A row, in any of the databases."""

    def __init__(self, connection: Any, table: str, mark: str) -> None:
        self._connection, self._table, self._mark = connection, table, mark

    def create(self) -> None:
        SqlFence().create(self._connection)
        self._execute(f"CREATE TABLE {self._table} (value INTEGER NOT NULL)")
        self._execute(f"INSERT INTO {self._table} VALUES (0)")
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()

    def read(self, token: int | None = None) -> int:
        if token is not None:
            self._check(token)
        value = self._execute(f"SELECT value FROM {self._table}").fetchone()[0]
        self._connection.commit()  # Else a later read would see this one's snapshot.
        return int(value)

    def write(self, value: int, token: int | None) -> None:
        if token is not None:
            self._check(token)
        self._execute(f"UPDATE {self._table} SET value = {self._mark}", (value,))
        self._connection.commit()

    def _check(self, token: int) -> None:
        try:
            SqlFence().check(self._connection, token, resource=self._table)
        except StaleToken:
            self._connection.rollback()
            raise

    def _execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement, parameters)
        return cursor


class RedisCounter:
    def __init__(self, url: str, key: str) -> None:
        import redis

        self._client: Any = redis.Redis.from_url(url)
        self._key = key
        self._fence = RedisFence(self._client)

    def create(self) -> None:
        self._client.set(self._key, 0)

    def close(self) -> None:
        self._client.close()

    def read(self, token: int | None = None) -> int:
        if token is not None:
            self._fence.check(token, resource=self._key)
        return int(self._client.get(self._key))

    def write(self, value: int, token: int | None) -> None:
        if token is None:
            self._client.set(self._key, value)
        else:
            self._fence.set(self._key, value, token, resource=self._key)


class FileCounter:
    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def create(self) -> None:
        self._path.write_text("0")

    def close(self) -> None:
        """Nothing is open."""

    def read(self, token: int | None = None) -> int:
        if token is None:
            return int(self._path.read_text())
        return int(FileFence().read(self._path, token) or b"")

    def write(self, value: int, token: int | None) -> None:
        if token is None:
            new = self._path.with_name(f"{value}.new")
            new.write_text(str(value))
            new.replace(self._path)
        else:
            FileFence().write(self._path, str(value), token)


class S3Counter:
    def __init__(self, settings: dict[str, Any], bucket: str) -> None:
        import boto3

        self._client: Any = boto3.client("s3", **settings)
        self._bucket, self._fence = bucket, S3Fence(self._client, bucket)

    def create(self) -> None:
        self._client.create_bucket(Bucket=self._bucket)
        self._client.put_object(Bucket=self._bucket, Key=KEY, Body=b"0")

    def close(self) -> None:
        self._client.close()

    def read(self, token: int | None = None) -> int:
        content = self._fence.read(KEY, token)
        assert content is not None
        return int(content)

    def write(self, value: int, token: int | None) -> None:
        if token is None:
            self._client.put_object(Bucket=self._bucket, Key=KEY, Body=str(value).encode())
        else:
            self._fence.write(KEY, str(value), token)


class DynamoCounter:
    def __init__(self, settings: dict[str, Any], table: str) -> None:
        import boto3

        self._client: Any = boto3.client("dynamodb", **settings)
        self._table, self._fence = table, DynamoFence(self._client)

    def create(self) -> None:
        self._fence.create()
        self._client.create_table(
            TableName=self._table,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        )
        self.write(0, None)

    def close(self) -> None:
        self._client.close()

    def read(self, token: int | None = None) -> int:
        if token is not None:
            self._fence.check(token, resource=self._table)
        found = self._client.get_item(TableName=self._table, Key={"id": {"S": KEY}}, ConsistentRead=True)
        return int(found["Item"]["value"]["N"])

    def write(self, value: int, token: int | None) -> None:
        item = {"id": {"S": KEY}, "value": {"N": str(value)}}
        if token is None:
            self._client.put_item(TableName=self._table, Item=item)
        else:
            self._fence.put(self._table, item, token, resource=self._table)


class HttpCounter:
    """A service behind the middleware; see http_service."""

    def __init__(self, url: str) -> None:
        import httpx

        self._client = httpx.Client(base_url=url, timeout=30)

    def create(self) -> None:
        self.write(0, None)

    def close(self) -> None:
        self._client.close()

    def read(self, token: int | None = None) -> int:
        return int(self._ask("GET", token)["value"])

    def write(self, value: int, token: int | None) -> None:
        self._ask("PUT", token, str(value))

    def _ask(self, method: str, token: int | None, content: str | None = None) -> Any:
        path, auth = ("/unfenced", None) if token is None else ("/fenced/counter", FenceAuth(token, resource=KEY))
        answer = self._client.request(method, path, content=content, auth=auth)
        if answer.status_code == 409:
            assert token is not None
            raise StaleToken(KEY, token, answer.json().get("highest", token))
        return answer.raise_for_status().json()


def open_counter(kind: str, where: dict[str, Any]) -> Counter:
    """A counter from what was written down of it, in whatever process. It need not survive a power cut."""
    match kind:
        case "sqlite":
            connection = sqlite3.connect(where["path"], timeout=60)
            connection.execute("PRAGMA synchronous = OFF")
            return SqlCounter(connection, where["table"], "?")
        case "postgresql":
            import psycopg

            return SqlCounter(psycopg.connect(where["url"], options="-c synchronous_commit=off"), where["table"], "%s")
        case "mariadb":
            import pymysql

            quick = "SET GLOBAL innodb_flush_log_at_trx_commit = 0"
            return SqlCounter(pymysql.connect(**where["settings"], init_command=quick), where["table"], "%s")
        case "redis":
            return RedisCounter(**where)
        case "file":
            return FileCounter(**where)
        case "s3":
            return S3Counter(**where)
        case "dynamo":
            return DynamoCounter(**where)
        case "http":
            return HttpCounter(**where)
    raise AssertionError(kind)
