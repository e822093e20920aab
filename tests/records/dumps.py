"""What each store keeps, read with the store's own tools: lines of text, without what differs between two runs."""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import redis
from kazoo.client import KazooClient
from psycopg import sql

Rows = Iterable[tuple[str, dict[str, Any]]]
"""What each line is of, and its fields."""

TIMES = {"expires_at", "since", "dies_at", "buried_at", "expires", "at"}
"""Fields that are points in time, or None."""
NUMBERS = re.compile(r"\b\d{16}\b")
"""Tokens, places and versions: counting starts at the time of creation in µs."""
MILLISECONDS = re.compile(r"\b1\d{12}\b")
SECONDS = re.compile(r"\b1\d{9}\.\d+\b")
DIGEST = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b")


class Normal:
    """Replaces what differs between two runs by placeholders, the same value by the same one."""

    def __init__(self, sessions: dict[str, str], pids: dict[int, str]) -> None:
        self.fixed = {session: f"<{app}>" for session, app in sessions.items()}
        self.fixed |= {str(int(session, 16)): f"<lease of {app}>" for session, app in sessions.items()}
        self.pids = pids

    def lines(self, rows: Rows) -> list[str]:
        """One line per row, sorted. Big numbers are replaced by their rank, so their order counts."""
        texts = [f"{self.text(of)} {self._fields(fields)}".rstrip() for of, fields in rows]
        ranks = {n: f"<n{rank}>" for rank, n in enumerate(sorted({n for t in texts for n in NUMBERS.findall(t)}), 1)}
        return sorted(NUMBERS.sub(lambda found: ranks[found[0]], text) for text in texts)

    def _fields(self, fields: dict[str, Any]) -> str:
        return " ".join(f"{name}={self._value(name, value)}" for name, value in fields.items() if value is not None)

    def _value(self, name: str, value: Any) -> str:
        if name in TIMES:
            return "<time>"
        if isinstance(value, bytes):
            value = value.decode()
        return self.text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))

    def text(self, text: str) -> str:
        for value, placeholder in self.fixed.items():
            text = text.replace(value, placeholder)
        text = DIGEST.sub("<digest>", text)
        text = SECONDS.sub("<time>", MILLISECONDS.sub("<time>", text))
        for pid, of in self.pids.items():
            text = re.sub(rf"\b{pid}\b", f"<pid of {of}>", text)
        return re.sub(rf"(?<![\w/.-]){re.escape(socket.gethostname())}(?![\w/.-])", "<host>", text)


# Tables


def of_sqlite(path: Path) -> Rows:
    """The engine's file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in sorted(tables):
            for row in connection.execute(f"SELECT * FROM {table}"):
                yield table, _of_this_machine(dict(row))


def _of_this_machine(row: dict[str, Any]) -> dict[str, Any]:
    if row.get("key") in ("boot_id", "machine_id", "time_namespace", "secret"):
        return row | {"value": f"<{row['key'].replace('_', ' ')}>"}
    return row


def of_postgres(url: str) -> Rows:
    """The tables of a schema. The counters of buckets that were never used are left out."""
    address, _, schema = url.partition("?schema=")
    with psycopg.connect(address) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        for (table,) in sorted(found):
            if table == "counters":
                continue
            query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table))
            cursor = connection.execute(query)
            names = [column.name for column in cursor.description or ()]
            rows = [_of_this_machine(dict(zip(names, row, strict=True))) for row in cursor]
            arrivals = sorted({(row["kind"], row["name"], row["ord"]) for row in rows}) if table == "claims" else []
            for fields in rows:
                if table == "claims":
                    # Each bucket has a counter of its own, and all of them started at nearly the same time.
                    lock = (fields["kind"], fields["name"])
                    place = [arrival[2] for arrival in arrivals if arrival[:2] == lock].index(fields["ord"])
                    fields["token"] = None if fields["token"] is None else f"<ord+{fields['token'] - fields['ord']}>"
                    fields["ord"] = f"<{place + 1} of its name>"
                if "channel" in fields:
                    fields["channel"] = re.sub(r"[0-9a-f]{32}$", "<digest>", fields["channel"])
                if "version" in fields:
                    fields["version"] = "<version>"
                if isinstance(fields.get("value"), bytes):
                    fields["value"] = NUMBERS.sub("<n>", fields["value"].decode())
                yield table, fields


def of_advisory(url: str) -> Rows:
    """The advisory locks of a database."""
    query = """
        SELECT classid, objid, objsubid, mode, granted FROM pg_locks
        WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    """
    with psycopg.connect(url.partition("?")[0]) as connection:
        for classid, objid, subid, mode, granted in connection.execute(query):
            yield f"{classid}/{objid}/{subid}", {"mode": mode, "granted": granted}


# Redis


def of_redis(url: str) -> Rows:
    """The keys of a database, each field of a hash on a line of its own."""
    client: Any = redis.Redis.from_url(url)
    with closing(client):
        for key in sorted(client.keys("*{story}*")):
            name, kind = key.decode(), client.type(key).decode()
            yield f"{name} {kind}", {"ends": client.pttl(key) >= 0}
            for field, value in _contents(client, key, kind):
                # Of a session's fields, that is.
                shown = "<time>" if field == "expires" else "<secret>" if field == "secret" else _unpacked(value)
                yield f"{name} {kind} {field}", {"value": shown}


def _contents(client: Any, key: bytes, kind: str) -> Iterator[tuple[str, bytes]]:
    if kind == "hash":
        yield from ((field.decode(), value) for field, value in client.hgetall(key).items())
    elif kind == "zset":
        scores = client.zrange(key, 0, -1, withscores=True)
        yield from ((member.decode(), str(int(score)).encode()) for member, score in scores)
    elif kind == "set":
        yield from ((member.decode(), b"") for member in client.smembers(key))
    elif kind == "list":
        yield from ((str(place), value) for place, value in enumerate(client.lrange(key, 0, -1)))
    else:
        assert kind == "string", kind
        yield "", client.get(key)


def _unpacked(value: bytes) -> str:
    """MessagePack as JSON; text as it is."""
    if value[:1] < b"\x80":
        return value.decode()
    found, rest = _unpack(value)
    assert not rest, value
    return json.dumps(found, ensure_ascii=False)


def _unpack(data: bytes) -> tuple[Any, bytes]:
    """The first value of MessagePack data, as far as scripts write it, and what follows it."""
    head, rest = data[0], data[1:]
    if head < 0x80 or head >= 0xE0:
        return head if head < 0x80 else head - 256, rest
    if 0x90 <= head < 0xA0:
        items = []
        for _ in range(head & 0x0F):
            item, rest = _unpack(rest)
            items.append(item)
        return items, rest
    if 0xA0 <= head < 0xC0:
        return rest[: head & 0x1F].decode(), rest[head & 0x1F :]
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], rest
    if head in (0xD9, 0xDA):
        width = 1 if head == 0xD9 else 2
        end = width + int.from_bytes(rest[:width])
        return rest[width:end].decode(), rest[end:]
    form = ">" + "fdBHIQbhiq"[head - 0xCA]
    width = struct.calcsize(form)
    return struct.unpack(form, rest[:width])[0], rest[width:]


# etcd


class Etcd:
    """The keys of an etcd, over its JSON gateway."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def keys(self, prefix: bytes) -> list[dict[str, Any]]:
        """All keys that start so, with values as bytes."""
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        found = self._call("/v3/kv/range", {"key": _base64(prefix), "range_end": _base64(end)}).get("kvs", [])
        return [each | {name: base64.b64decode(each.get(name, "")) for name in ("key", "value")} for each in found]

    def put(self, key: bytes, value: bytes) -> None:
        self._call("/v3/kv/put", {"key": _base64(key), "value": _base64(value)})

    def _call(self, path: str, body: dict[str, Any]) -> Any:
        with closing(http.client.HTTPConnection(self.endpoint, timeout=20.0)) as connection:
            connection.request("POST", path, json.dumps(body))
            reply = connection.getresponse()
            text = reply.read()
            assert reply.status == http.client.OK, text
            return json.loads(text)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def of_etcd(url: str) -> Rows:
    """The engine's keys, with the order in which they were made and written."""
    keys = Etcd(url.removeprefix("etcd://").partition(",")[0]).keys(b"/holdfast/1/story/")
    revisions = sorted({int(key[field]) for key in keys for field in ("create_revision", "mod_revision")})
    for key in keys:
        value = re.sub(r'("revision": ?)\d+', r"\1<revision>", key["value"].decode())
        value = re.sub(r'("arrived": ?)\d+', r"\1<revision>", value)
        created, written = (revisions.index(int(key[field])) + 1 for field in ("create_revision", "mod_revision"))
        lease = key.get("lease")
        # A cell has a lease of its own; those of sessions are known by name.
        lease = "<lease>" if lease is not None and b"/c/" in key["key"] else lease
        yield key["key"].decode(), {"created": created, "written": written, "lease": lease, "value": value}


# ZooKeeper


def of_zookeeper(url: str) -> Rows:
    """The nodes under a chroot."""
    hosts, _, chroot = url.removeprefix("zookeeper://").partition("/")
    client = KazooClient(hosts)
    client.start()
    try:
        yield from _nodes(client, f"/{chroot}", "")
    finally:
        client.stop()
        client.close()


def _nodes(client: Any, chroot: str, path: str) -> Rows:
    data, stat = client.get(chroot + path)
    yield path or "/", {"ephemeral": bool(stat.ephemeralOwner), "value": _node_value(path, data)}
    for child in client.get_children(chroot + path):
        yield from _nodes(client, chroot, f"{path}/{child}")


def _node_value(path: str, data: bytes) -> str | None:
    if re.search(r"/cells/[^/]+/[^/]+$", path):
        # A byte and a double come before the value: whether there is one, and for how long it is kept.
        there, keep = struct.unpack(">?d", data[:9])
        return f"there={there} keep={keep:g} {data[9:].decode()}"
    # Which zxids belong to which epoch of this server.
    return re.sub(r'"epochs": \[.*\]', '"epochs": <epochs>', data.decode()) or None


# The lock server's stores

Kept = dict[tuple[Any, ...], list[Any]]
"""By what it is and its key: a record."""
KEYS: dict[str, Callable[[list[Any]], tuple[Any, ...]]] = {
    "S": lambda fields: (fields[0],),
    "R": lambda fields: (fields[0][0],),
    "N": lambda fields: (fields[0],),
    "T": lambda fields: (fields[0],),
    "C": lambda fields: (fields[0], fields[1]),
    "W": lambda fields: (fields[0], fields[1]),
    "L": lambda fields: (fields[0], fields[1], fields[2]),
}
"""The key of what is put, by its letter. A small letter drops it."""


def kept_by(records: Iterable[list[Any]]) -> Kept:
    """What is there after these changes: how they are cut into batches, and what of it is folded, does not count."""
    kept: Kept = {}
    for letter, *fields in records:
        if letter in KEYS:
            kept[letter, *KEYS[letter](fields)] = fields
        elif letter == "l":
            session, watch, upto = fields
            for key in [key for key in kept if key[:3] == ("L", session, watch) and key[3] <= upto]:
                del kept[key]
        else:
            key = ("T", fields[1]) if letter == "t" else (letter.upper(), *fields[: 1 if letter in "sr" else 2])
            kept.pop(key, None)
    return kept


NAMES = {
    "S": "session", "R": "claim", "N": "counter", "T": "tombstone", "C": "cell", "W": "watch", "L": "letter",
}  # fmt: skip
TIMES_IN = {"S": (2,), "R": (2, 5), "C": (5,)}
"""Which fields of a record are points in time, by its letter."""


def of_records(kept: Kept) -> Rows:
    for (letter, *_), fields in kept.items():
        shown = list(fields)
        for place in TIMES_IN.get(letter, ()):
            shown[place] = None if shown[place] is None else "<time>"
        yield NAMES[letter], {"record": shown}


def sealed(blob: bytes) -> Any:
    """What stands behind the version and the checksum."""
    version, _, body = blob.split(b" ", 2)
    assert version == b"1"
    return json.loads(body)


def of_server_sqlite(path: Path) -> Kept:
    """The records of the server's file: of its state, then of its log."""
    with closing(sqlite3.connect(path)) as connection:
        state = connection.execute("SELECT record FROM state ORDER BY kind, arrival, one, two, number").fetchall()
        log = connection.execute("SELECT batch FROM log ORDER BY number").fetchall()
    records = [json.loads(record) for (record,) in state]
    for (batch,) in log:
        records += sealed(batch)[2]
    return kept_by(records)


def of_server_etcd(endpoint: str) -> Kept:
    """The records of a cluster's keys: of its snapshot, then of its log."""
    keys = {key["key"].decode(): key["value"] for key in Etcd(endpoint).keys(b"/holdfast-server/1/holdfast/")}
    parts = [value for key, value in sorted(keys.items()) if "/snapshot/" in key]
    log = [value for key, value in sorted(keys.items()) if "/live/log/" in key]
    # An entry that begins with a dot is a whole batch; with so little in the store, all of them are.
    assert all(value[:1] == b"." for value in (*parts, *log))
    records = [record for part in parts for record in sealed(zlib.decompress(part[1:]))]
    records += [record for entry in log for record in sealed(zlib.decompress(entry[1:]))[2]]
    return kept_by(records)
