"""Tests in several processes that have collected them once: `pytest --workers 7`.

Those of pytest-xdist each collect all tests again, which takes six seconds of processor time. Here the process that has
collected them forks. Whoever is free takes the next unit: the tests that share a server (tests/conftest.py says which),
or one test. Reports come back through a pipe and are told as ever. A worker that dies costs the tests that it was
given: they are reported as failed, never left out.
"""

from __future__ import annotations

import os
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

import pytest
from _pytest.capture import CaptureManager
from _pytest.tmpdir import TempPathFactory

NUMBER = pytest.StashKey[int]()
"""Which worker this process is; not there in the one that collects."""
Group = Callable[[pytest.Item], str | None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="how many processes run tests; 0: this one")


def run(session: pytest.Session, group: Group) -> bool | None:
    """Run all tests in workers, those of a group in the same; None if there are to be no workers."""
    options = session.config.option
    if not options.workers or options.collectonly or session.testsfailed:
        return None
    Workers(session, options.workers, group).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def units_of(items: Sequence[pytest.Item], group: Group) -> list[list[int]]:
    """The places of tests that one worker runs one after the other, in the order of the first of each."""
    units: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        units.setdefault(group(item) or item.nodeid, []).append(place)
    return list(units.values())


class Workers:
    """All of them, as the process sees them that has collected the tests."""

    def __init__(self, session: pytest.Session, count: int, group: Group) -> None:
        self.session, self.config = session, session.config
        self._units = deque(units_of(session.items, group))
        self._given: dict[Connection, list[int]] = {}
        """What each has been given, and has not finished."""
        self._pids: list[int] = []
        for number in range(count):
            self._start(number)

    def _start(self, number: int) -> None:
        ours, theirs = Pipe()
        # Fixed before anybody forks, so that all write into one folder.
        folder = self.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        pid = os.fork()
        if not pid:
            ours.close()
            for other in self._given:
                other.close()
            Worker(self.session, theirs, number).live(folder / f"worker-{number}")
        theirs.close()
        self._pids.append(pid)
        self._given[ours] = []

    def run(self) -> None:
        """Give them all there is to do, and tell what they report."""
        try:
            while self._given:
                for link in wait(list(self._given)):
                    assert isinstance(link, Connection)
                    self._hear(link)
        finally:
            for link in self._given:
                link.close()
            for pid in self._pids:
                os.waitpid(pid, 0)

    def _hear(self, link: Connection) -> None:
        try:
            said, what = link.recv()
        except EOFError:
            self._bury(link)
            return
        if said == "more":
            stopped = self.session.shouldfail or self.session.shouldstop
            unit = self._units.popleft() if self._units and not stopped else []
            self._given[link] += unit
            # One that ended meanwhile is buried in the next turn.
            with suppress(OSError):
                link.send(unit)
        elif said == "done":
            self._given[link].remove(what)
        elif said == "stopped":
            self._given[link].clear()
        else:
            report = self.config.hook.pytest_report_from_serializable(config=self.config, data=what)
            self.config.hook.pytest_runtest_logreport(report=report)

    def _bury(self, link: Connection) -> None:
        """A worker has ended. If it was not done, that is a failure of every test that it had."""
        link.close()
        for place in self._given.pop(link):
            item = self.session.items[place]
            problem = "the process that was to run it has ended"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", problem, "call")
            self.config.hook.pytest_runtest_logreport(report=report)


class Worker:
    """One of them, as it sees itself."""

    def __init__(self, session: pytest.Session, link: Connection, number: int) -> None:
        self.session, self.config, self._link = session, session.config, link
        self.config.stash[NUMBER] = number

    def live(self, folder: Path) -> None:
        """Run tests until there are no more. Does not return."""
        try:
            self._be_quiet()
            self.config._tmp_path_factory = TempPathFactory(  # type: ignore[attr-defined]
                folder, 3, "failed", self.config.trace.get("tmpdir"), _ispytest=True
            )
            self.config.pluginmanager.register(self)
            self._work()
        except BaseException:  # noqa: BLE001 - nobody above would tell of it
            traceback.print_exc()
            # It was interrupted, or nobody listens any more: servers must not outlive it.
            self.session._setupstate.teardown_exact(None)
            os._exit(1)
        os._exit(0)

    def _be_quiet(self) -> None:
        """What it prints is for the reports; what the run prints comes from the process that has collected."""
        capture = self.config.pluginmanager.getplugin("capturemanager")
        assert isinstance(capture, CaptureManager)
        # A file of its own: the others write into theirs.
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        self.config.get_terminal_writer()._file = open(os.devnull, "w")  # noqa: SIM115 - until the end

    def _work(self) -> None:
        places = deque(self._more())
        while places:
            place = places.popleft()
            if not places:
                places.extend(self._more())
            following = self.session.items[places[0]] if places else None
            item = self.session.items[place]
            self.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._link.send(("done", place))
            if self.session.shouldfail or self.session.shouldstop:
                self._link.send(("stopped", None))
                self.session._setupstate.teardown_exact(None)
                return

    def _more(self) -> list[int]:
        """The next unit; empty if there is none."""
        self._link.send(("more", None))
        unit: list[int] = self._link.recv()
        return unit

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send it."""
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self._link.send(("report", data))
