"""What every test of this project gets."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.engines import FreshUrl, Subject

# A run that was started in the background ignores Ctrl-C, and so would every process that it starts.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)


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
SHARING = (
    "tests/cluster/",
    "tests/demo/",
    "tests/engines/",
    "tests/fence/",
    "tests/house/test_groups.py",
    "tests/server/",
    "tests/verify/test_report.py",
)
"""Where the tests of a file share a server, or a run."""


# First: a worker of xdist reads the groups in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let one worker run the tests that share a server, which is started once then; and let the long ones begin."""
    for item in items if config.pluginmanager.hasplugin("xdist") else ():
        group = _group(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (_long(item) is None, not item.nodeid.startswith("tests/conformance/")))


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


@pytest.fixture(scope="session")
def fresh_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Subject], str]]:
    """Makes URLs. Each engine is started when a test first asks for it, and once a run."""
    started: dict[str, FreshUrl] = {}
    with ExitStack() as stack:

        def make(subject: Subject) -> str:
            if subject.name not in started:
                folder = tmp_path_factory.mktemp(subject.name)
                started[subject.name] = stack.enter_context(subject.start(folder))
            return started[subject.name]()

        yield make
