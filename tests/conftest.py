"""What every test of this project gets."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import hypothesis
import pytest
from hypothesis import strategies

from holdfast.verify.servers.postgres import PostgresServer
from tests import prepared
from tests.conformance.engines import FreshUrl, Subject
from tests.workers import NUMBER, pytest_addoption, run

# A run that was started in the background ignores Ctrl-C, and so would every process that it starts.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)

__all__ = ["pytest_addoption"]
prepared.install()

# Nothing of thousands of tests becomes garbage while they are collected: to look for some takes half of that time.
gc.disable()

LONG = {
    "tests/verify/test_targets.py": "long-faults",
    "tests/cluster/test_disasters.py": "long-faults",
    "tests/without_lock/": "long-cells",
    "tests/fence/test_pauses.py": "long-processes",
    "tests/process/": "long-processes",
}
"""Where a test keeps many processes busy for many seconds.

Those of a group run one after the other, and begin: more at once would want more processors than there are, and nobody
waits for them at the end.
"""
EARLY = (
    "tests/conformance/",
    "tests/engines/wire/",
    "tests/verify/",
    "tests/bench/",
    "tests/cluster/",
    "tests/engines/",
    "tests/without_lock/",
    "tests/demo/",
)
"""Where tests wait for seconds each, or many share a server: they come before those that fill the gaps at the end."""
SHARING = (
    "tests/cluster/",
    "tests/demo/",
    "tests/engines/",
    "tests/fence/",
    "tests/server/",
    "tests/verify/test_report.py",
)
"""Where the tests of a file share a server, or a run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the long ones begin."""
    items.sort(key=_turn)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Let one worker run the tests that share a server, which is started once then."""
    # Look for garbage again, but not among the tests themselves, which are there until the end.
    gc.enable()
    # Before: Hypothesis asks who refers to its random numbers, and since Python 3.14 none would be seen that is frozen.
    hypothesis.find(strategies.none(), lambda _: True, settings=hypothesis.settings(database=None))
    gc.freeze()
    return run(session, _group)


def _turn(item: pytest.Item) -> int:
    """When it is to begin, among all."""
    if _long(item) is not None:
        return -1
    return next((number for number, start in enumerate(EARLY) if item.nodeid.startswith(start)), len(EARLY))


def _long(item: pytest.Item) -> str | None:
    return next((group for start, group in LONG.items() if item.nodeid.startswith(start)), None)


def _group(item: pytest.Item) -> str | None:
    if (long := _long(item)) is not None:
        return long
    file = item.nodeid.partition("::")[0]
    given = getattr(getattr(item, "callspec", None), "params", {})
    if isinstance(subject := given.get("subject"), Subject):
        return subject.name
    if "scene" in given:
        return f"{file}-{given['scene']}"
    return file if file.startswith(SHARING) else None


@pytest.fixture(autouse=True)
def no_settings_of_this_user(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep tests away from the lock file that the person running them may be using."""
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))


@pytest.fixture(scope="session", autouse=True)
def one_cluster_for_all(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> None:
    """PostgreSQL makes its first files once for all workers."""
    base = tmp_path_factory.getbasetemp()
    PostgresServer.template = (base.parent if NUMBER in pytestconfig.stash else base) / "postgres"


@pytest.fixture
def garbage_is_collected() -> Iterator[None]:
    """Collect what an interrupt left in a cycle, such as an open socket: the warning would come in a later test."""
    yield
    gc.collect()


class Servers:
    """What the engines under test need: started when a test first asks, once for all that share it."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._urls: dict[str, FreshUrl] = {}
        self._stack = ExitStack()

    def fresh_url(self, subject: Subject) -> str:
        """Where nobody has been before."""
        if subject.name not in self._urls:
            folder = self._folders.mktemp(subject.name)
            self._urls[subject.name] = self._stack.enter_context(subject.start(folder))
        return self._urls[subject.name]()

    def end(self) -> None:
        """End all of them. Who asks again gets new ones."""
        self._urls.clear()
        self._stack.close()


SERVERS = pytest.StashKey[Servers]()


@pytest.fixture(scope="session")
def fresh_url(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Subject], str]]:
    """Makes URLs. Each engine is started when a test first asks for it."""
    servers = pytestconfig.stash[SERVERS] = Servers(tmp_path_factory)
    yield servers.fresh_url
    servers.end()


# Last: what the test itself has used is closed by then.
@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Let a worker's servers go with the last test of their group: idle ones take time from the tests that follow."""
    config = item.config
    if nextitem is None or SERVERS not in config.stash or NUMBER not in config.stash:
        return
    if _group(nextitem) != _group(item):
        config.stash[SERVERS].end()
