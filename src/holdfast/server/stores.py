"""Which store a URL names."""

from __future__ import annotations

from holdfast.core import urls
from holdfast.errors import InvalidRequest
from holdfast.server.memory_store import MemoryStore
from holdfast.server.store import Store


def open_store(text: str) -> tuple[Store, str, bool]:
    """The store, not loaded yet; its scheme; and whether it survives the end of the process."""
    url = urls.parse(text)
    if url.scheme == "memory":
        return MemoryStore(), "memory", False
    if url.scheme == "sqlite":
        from holdfast.server.sqlite_store import SqliteStore

        return SqliteStore.from_url(url), "sqlite", True
    if url.scheme == "etcd":
        try:
            from holdfast.server.cluster.store import ClusterStore
        except ModuleNotFoundError as error:
            problem = f"its driver {error.name!r} is not installed: pip install 'holdfast[etcd]'"
            raise InvalidRequest("store", str(url), problem) from error

        return ClusterStore.from_url(url), "etcd", True
    rule = "a server keeps its table in sqlite:///path, in etcd://a,b,c (replicated), or in memory:// (not durable)"
    raise InvalidRequest("store", str(url), rule)
