"""The server's log: an event and its fields, as JSON for machines or as a line for people."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

from holdfast.text import as_json, printable

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the event has beside its name."""
    found = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    if record.exc_info:
        found["traceback"] = logging.Formatter().formatException(record.exc_info)
    return found


def moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class JsonForm(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        head = {"time": moment(record), "level": record.levelname.lower(), "event": record.getMessage()}
        return as_json(head | fields(record), str)


class TextForm(logging.Formatter):
    """One line: the time, the level, the event, and `key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        shown = fields(record)
        traceback = shown.pop("traceback", None)
        # The quoting keeps a line one line, and a terminal safe, whatever a client put into it.
        rest = "".join(f" {key}={as_json(value, str)}" for key, value in shown.items())
        line = f"{moment(record)} {record.levelname.lower():7} {printable(record.getMessage())}{rest}"
        return f"{line}\n{traceback}" if traceback else line


def set_up(form: str, level: str) -> logging.Handler:
    """Send the server's log to stderr."""
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextForm() if text else JsonForm())
    log = logging.getLogger("holdfast")
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(level.upper())
    return handler
