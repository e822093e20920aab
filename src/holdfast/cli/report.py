"""What `run` and `elect` say on stderr while CMD has the output: a live line, a plain one, or JSON."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from holdfast.cli import screen
from holdfast.model import Place
from holdfast.runtime import clock
from holdfast.text import printable

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Warnings(logging.Handler):
    """Hands what is logged to a report."""

    def __init__(self, report: Report) -> None:
        super().__init__(logging.WARNING)
        self.report = report

    def emit(self, record: logging.LogRecord) -> None:
        self.report.say(record.getMessage(), "warning")


def _same(one: Place, other: Place) -> bool:
    """Whether two places differ by nothing but time."""
    blockers = [place.blocker and place.blocker.claim for place in (one, other)]
    return one.position == other.position and blockers[0] == blockers[1]


class Report:
    """Tells one person, or one program, how things stand. It may be told of places by any thread."""

    def __init__(self, name: str, *, quiet: bool, as_json: bool) -> None:
        self.name, self.quiet, self.as_json = name, quiet, as_json
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._waits = False
        self._told = False
        self._place: tuple[float, Place] | None = None

    def say(self, text: str, event: str = "message", **facts: Any) -> None:
        """One line, also while a live line is shown."""
        if self.as_json:
            self.tell(event, **facts, message=text)
        elif not self.quiet:
            self._write(screen.tell, f"holdfast: {text}")

    def tell(self, event: str, **facts: Any) -> None:
        """Something that only a program wants to know."""
        if self.as_json:
            self._write(screen.tell_document, {"event": event, "name": self.name, **facts})

    def _write(self, tell: Callable[[Any], None], what: object) -> None:
        # That nobody reads is no reason to leave a lock or a CMD alone.
        with contextlib.suppress(OSError):
            tell(what)

    def take_warnings(self) -> None:
        """Tell what the library logs in the same way as everything else."""
        logger = logging.getLogger("holdfast")
        logger.addHandler(Warnings(self))
        logger.propagate = False

    def __enter__(self) -> Report:
        """A wait begins."""
        with self._lock:
            self._waits, self._told, self._place = True, False, None
        return self

    def __exit__(self, *_: object) -> None:
        """The wait is over: a place that is told late is not shown."""
        with self._lock:
            self._waits = False
            live, self._live = self._live, None
        if live is not None:
            live.stop()

    def waiting(self, place: Place) -> None:
        """Show who holds the lock, and the place in line."""
        with self._lock:
            if not self._waits:
                return
            known, self._place = self._place, (clock.now(), place)
            if self.as_json:
                # An engine without a line tells of each of its tries.
                if known is not None and _same(known[1], place):
                    return
                blocker = place.blocker and asdict(place.blocker)
                self.tell("waiting", position=place.position, blocker=blocker)
            elif not self.quiet and sys.stderr.isatty():
                self._show()
            elif not self._told:
                self.say(self.sentence())
            self._told = True

    def _show(self) -> None:
        if self._live is None:
            from rich.live import Live

            self._live = Live(self, console=screen.console(stderr=True), refresh_per_second=8, transient=True)
            self._live.start()
        else:
            self._live.refresh()

    def sentence(self) -> str:
        """How the wait stands now."""
        assert self._place is not None
        seen, place = self._place
        text = f"waiting for {self.name!r}: place {place.position} in line"
        if place.blocker is None:
            return text
        blocker = replace(place.blocker, age=place.blocker.age + clock.now() - seen)
        verb = "held by" if blocker.token is not None else "behind"
        where = f" ({blocker.name!r})" if blocker.name not in ("", self.name) else ""
        note = f": {blocker.note}" if blocker.note else ""
        return f"{text}, {verb} {blocker.who}{where} for {screen.seconds(blocker.age)}{note}"

    def __rich__(self) -> Text:
        from rich.text import Text

        frame = _FRAMES[int(clock.now() * 8) % len(_FRAMES)]
        text = Text(no_wrap=True, overflow="ellipsis")
        return text.append(f"{frame} ", style="cyan").append(printable(self.sentence()))
