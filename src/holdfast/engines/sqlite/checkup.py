"""What `doctor` looks at in an embedded deployment."""

from __future__ import annotations

import os
import shutil
import sqlite3

from holdfast.engines.checkup import Finding
from holdfast.engines.sqlite.file import SqliteFile, unavailable
from holdfast.runtime import clock, machine

LITTLE_ROOM = 64 * 1024 * 1024


def check_up(file: SqliteFile) -> list[Finding]:
    """Look at the file and what it lies on. That it could be opened has been checked already."""
    connection, _ = file.connect()
    try:
        return [_file_system(file), _room(file), _access(file), _integrity(connection), _sessions(connection), _scope()]
    except sqlite3.Error as error:
        raise unavailable(file.address, error) from error
    finally:
        connection.close()


def _file_system(file: SqliteFile) -> Finding:
    kind = machine.file_system(file.path) or "unknown"
    return Finding("file system", "good", kind, "Exclusion rests on this file system's locks.")


def _room(file: SqliteFile) -> Finding:
    free = shutil.disk_usage(file.path.parent).free
    found = f"{free / 1e6:,.0f} MB free"
    if free >= LITTLE_ROOM:
        return Finding("disk space", "good", found)
    consequence = "On a full disk nothing is granted, and heartbeats fail: grants are lost within their ttl."
    return Finding("disk space", "warning", found, consequence, "Make room, or put the file elsewhere.")


def _access(file: SqliteFile) -> Finding:
    mode = os.stat(file.path).st_mode & 0o777
    if not mode & 0o002:
        return Finding("access", "good", f"mode {mode:o}")
    consequence = "Everybody on this machine can release, break and forge locks."
    return Finding("access", "danger", f"mode {mode:o}", consequence, f"chmod o-w {file.path.name}")


def _integrity(connection: sqlite3.Connection) -> Finding:
    answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if answer == "ok":
        return Finding("integrity", "good", "the file is sound")
    mend = "Stop its users and move the file away: tokens of a new one are larger than all before."
    return Finding("integrity", "danger", str(answer), "What it says about who holds what cannot be trusted.", mend)


def _sessions(connection: sqlite3.Connection) -> Finding:
    alive, shortest = connection.execute(
        "SELECT count(*), min(ttl) FROM sessions WHERE expires_at > ?", (clock.now(),)
    ).fetchone()
    found = f"{alive} alive" if shortest is None else f"{alive} alive, shortest ttl {shortest:g} s"
    return Finding("sessions", "good", found)


def _scope() -> Finding:
    found = f"boot {machine.boot_id()[:8]}, machine {machine.machine_id()[:8]}"
    return Finding("scope", "good", found, "It excludes processes of this machine only, containers included.")
