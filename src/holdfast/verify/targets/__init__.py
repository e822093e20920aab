"""The deployments that the verifier starts by itself: a row each."""

from __future__ import annotations

import importlib
from pathlib import Path

from holdfast.core.urls import shown
from holdfast.engines.registry import how_to_get
from holdfast.errors import InvalidRequest
from holdfast.verify.target import Target

TARGETS = {
    "sqlite": "holdfast.verify.targets.sqlite:SqliteTarget",
    "redis": "holdfast.verify.targets.redis:RedisTarget",
    "redis-sentinel": "holdfast.verify.targets.redis_sentinel:SentinelTarget",
    "redlock": "holdfast.verify.targets.redlock:RedlockTarget",
    "zookeeper": "holdfast.verify.targets.zookeeper:ZooKeeperTarget",
    "postgresql": "holdfast.verify.targets.postgresql:PostgresTarget",
    "etcd": "holdfast.verify.targets.etcd:EtcdTarget",
    "server": "holdfast.verify.targets.server:ServerTarget",
    "cluster": "holdfast.verify.targets.cluster:ClusterTarget",
}
"""Name -> where it is. A module is imported when its target is asked for."""


def make_target(name: str, folder: Path) -> Target:
    """The target that the command line names: one of the table, or the user's own deployment by its URL."""
    if "://" in name:
        from holdfast.verify.targets.url import UrlTarget

        return UrlTarget(folder, name)
    place = TARGETS.get(name)
    if place is None:
        raise InvalidRequest("target", shown(name), f"an engine URL, or one of {', '.join(TARGETS)}")
    module, _, attribute = place.partition(":")
    try:
        found: type[Target] = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise InvalidRequest("target", name, f"it needs {how_to_get(error)}") from error
    return found(folder)
