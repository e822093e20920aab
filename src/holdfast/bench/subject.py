"""What is measured: Holdfast at a URL, or a peer. One small class each, behind one protocol.

A new peer is one file in `holdfast.bench.peers` and one line in `SUBJECTS`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Protocol

from holdfast.core import urls
from holdfast.errors import InvalidRequest

OURS = "holdfast"
SUBJECTS = {
    OURS: "holdfast.bench.ours:Ours",
    "etcd-v3lock": "holdfast.bench.peers.etcd_v3lock:V3Lock",
    "etcd3gw": "holdfast.bench.peers.etcd3gw:Etcd3Gw",
    "filelock": "holdfast.bench.peers.filelock:Filelock",
    "redis-py": "holdfast.bench.peers.redis_py:RedisPy",
    "python-redis-lock": "holdfast.bench.peers.python_redis_lock:PythonRedisLock",
    "pottery": "holdfast.bench.peers.pottery:Pottery",
    "redlock-py": "holdfast.bench.peers.redlock_py:RedlockPy",
    "kazoo": "holdfast.bench.peers.kazoo:KazooLock",
    "pg-advisory": "holdfast.bench.peers.postgres:AdvisoryLocks",
    "pg-for-update": "holdfast.bench.peers.postgres:RowLocks",
}
PEERS = tuple(name for name in SUBJECTS if name != OURS)


@dataclass(frozen=True, slots=True)
class Where:
    """Where the locks of one run live, for every subject and in every process alike."""

    url: str
    folder: str
    """A folder of this run's own, on the file system of the database if there is one."""
    namespace: str
    ttl: float


class Taker(Protocol):
    """One caller's way to one lock."""

    def acquire(self) -> object: ...

    def release(self) -> object: ...


class TaskTaker(Protocol):
    """The same for a task."""

    async def acquire(self) -> object: ...

    async def release(self) -> object: ...


class Connection(Protocol):
    """What the threads of a process share."""

    def taker(self, name: str) -> Taker: ...

    def requests(self) -> int | None:
        """How many requests went to the engine so far; None where nobody counts."""

    def close(self) -> None: ...


class TaskConnection(Protocol):
    """What the tasks of a loop share."""

    def taker(self, name: str) -> TaskTaker: ...

    async def close(self) -> None: ...


class Subject(Protocol):
    """Something that has locks."""

    name: str
    """Its name in `SUBJECTS`."""
    where: Where
    has_tasks: bool
    """Whether it has a lock for asyncio."""
    spans_processes: bool
    """Whether other processes see the same locks."""
    schemes: tuple[str, ...]
    """Those of the URLs that it understands; empty if it needs none."""

    def __init__(self, where: Where) -> None: ...

    def connect(self) -> Connection: ...

    async def connect_tasks(self) -> TaskConnection: ...


def find(name: str, where: Where) -> Subject:
    """The subject of this name; a clear word if there is none, or if it is not installed."""
    if name not in SUBJECTS:
        raise InvalidRequest("peer", name, f"known: {', '.join(PEERS)}")
    module, _, class_name = SUBJECTS[name].partition(":")
    try:
        found: type[Subject] = getattr(import_module(module), class_name)
    except ModuleNotFoundError as error:
        hint = f"{error.name!r} is not installed: pip install 'holdfast[bench]'"
        raise InvalidRequest("peer", name, hint) from error
    if found.schemes and urls.parse(where.url).scheme not in found.schemes:
        runs_on = " or ".join(f"{scheme}://" for scheme in found.schemes)
        raise InvalidRequest("peer", name, f"it runs on {runs_on}: give the URL of one")
    return found(where)


def as_data(subject: Subject) -> dict[str, Any]:
    """What another process makes the same subject from."""
    return {"name": subject.name, "where": asdict(subject.where)}


def from_data(data: dict[str, Any]) -> Subject:
    """The subject that another process described."""
    return find(data["name"], Where(**data["where"]))
