"""What `connect()` is told, checked before anything is opened."""

from __future__ import annotations

import atexit
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core import deadline, urls
from holdfast.core.names import legible
from holdfast.engines.engine import Engine, Verbs
from holdfast.engines.registry import engine_class, lent_url
from holdfast.errors import EngineUnavailable, InvalidRequest, Unsupported, WeakerGuarantee
from holdfast.locks.client import Client
from holdfast.locks.spec import Spec, check_awaited, check_seconds
from holdfast.model import Guarantees
from holdfast.runtime.blocking import in_thread

DEFAULT_TTL = 10.0
DEFAULT_NAMESPACE = "holdfast"
DEFAULT_MAX_STALL = 60.0

_NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CAN_DO_ALL = "sqlite:// (one machine), holdfast:// or postgresql://"


def default_url() -> str:
    """`$HOLDFAST_URL`, else the embedded SQLite file of this user."""
    chosen = os.environ.get("HOLDFAST_URL")
    if chosen:
        return chosen
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(state) / "holdfast"
    url = f"sqlite:///{folder / 'locks.db'}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot make its folder: {error.strerror}; name another engine or file in $HOLDFAST_URL"
        raise EngineUnavailable(url, problem, "not done") from error
    return url


@dataclass(frozen=True, slots=True)
class Settings:
    """A valid set of what `connect()` takes."""

    url: urls.Url
    ttl: float
    namespace: str
    app: str
    require: frozenset[str]

    def engine(self) -> Engine:
        """The engine, if it promises what is required."""
        found = engine_class(self.url)
        if self.ttl < found.shortest_ttl:
            raise InvalidRequest("ttl", self.ttl, f"{self.url.scheme}:// serves {found.shortest_ttl:g} s or more")
        engine = found(self.url, self.namespace)
        missing = [flag for flag in self.require if not engine.guarantees.has(flag)]
        if missing:
            raise WeakerGuarantee(engine.address, missing, engine.guarantees.summary)
        return engine

    def core(self, engine: Engine, make_verbs: Callable[[], Verbs], **more: Any) -> Client:
        """A client's inside, with its keeper in a thread; closed at exit if nobody does it before."""
        core = Client(
            engine, make_verbs, engine.blocking, in_thread, ttl=self.ttl, namespace=self.namespace, app=self.app, **more
        )
        _open.add(core)
        return core


_open: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def _close_what_is_open() -> None:
    for core in list(_open):
        core.close_at_exit()


def find_url(given: object) -> urls.Url:
    """Where to connect to: a URL, the default one, or the settings that an existing client lends."""
    if given is None:
        return urls.parse(default_url())
    return urls.parse(given) if isinstance(given, str) else lent_url(given)


def make_settings(url: object, ttl: float, namespace: str, app: str | None, require: Iterable[str]) -> Settings:
    """Check what `connect()` was given."""
    parsed = find_url(url)
    seconds = check_seconds("ttl", ttl, least=deadline.SHORTEST_TTL)
    if seconds is None or seconds > deadline.LONGEST_TTL:
        raise InvalidRequest("ttl", ttl, f"a session lives for {deadline.SHORTEST_TTL:g} s to a day")
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise InvalidRequest("namespace", namespace, "1 to 64 letters, digits, dashes and underscores")
    if isinstance(require, str):
        raise InvalidRequest("require", require, "it is a set of names, as in {'consensus'}")
    required = frozenset(require)
    for flag in required:
        if flag not in Guarantees.FLAGS:
            raise InvalidRequest("require", flag, f"one of {', '.join(Guarantees.FLAGS)}")
    if app is None:
        app = Path(sys.argv[0] if sys.argv and sys.argv[0] else "python").stem
    if not isinstance(app, str) or len(app) > 256:
        raise InvalidRequest("app", app, "a short text that tells people who holds a lock")
    return Settings(parsed, seconds, namespace, legible(app), required)


def check_supported(client: Client, spec: Spec) -> Spec:
    """Raise Unsupported if the engine cannot do what the spec asks for, InvalidRequest if this API cannot."""
    check_awaited(client.io, on_lost=spec.on_lost, on_wait=spec.on_wait)
    needs = {
        "shared": spec.mode == "shared",
        "semaphore": spec.limit > 0,
        "subtree": spec.subtree,
    }
    for mode, needed in needs.items():
        if needed and mode not in client.engine.guarantees.modes:
            raise Unsupported(str(client), f"{mode} locks", _CAN_DO_ALL)
    return spec
