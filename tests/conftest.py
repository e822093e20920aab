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
