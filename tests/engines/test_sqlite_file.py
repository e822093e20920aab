"""Which files the embedded engine takes, which it refuses, and what a new boot does to one."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.core.table.commands import Inspect
from holdfast.engines.sqlite.engine import SqlitePort
from holdfast.runtime import clock, machine
from tests.faults.children import ROOT, eventually
from tests.faults.puppet import Puppet


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


def write(path: Path, sql: str, *values: object) -> None:
    """Change the file behind the engine's back."""
    database = sqlite3.connect(path)
    with database:
        database.execute(sql, values)
    database.close()


def read(path: Path, sql: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(path)
    found = database.execute(sql).fetchall()
    database.close()
    return found


def use(url: str) -> int:
    """Take a lock once; its token."""
    with holdfast.connect(url) as locks, locks.lock("k") as grant:
        return grant.token


def test_a_thread_that_asks_a_closed_client_opens_no_connection(url: str) -> None:
    """Nothing would close it again, which Python 3.13 warns of."""
    with holdfast.connect(url) as locks:
        locks.lock("k").acquire().release()
        port = locks._core.engine.ports[0]  # type: ignore[attr-defined]
    with pytest.raises(holdfast.EngineUnavailable, match="the client was closed") as refused:
        port.call(Inspect("lock", "k"), clock.now() + 1.0)

    assert refused.value.outcome == "not done"
    assert [item.value for item in port.pool.items] == [None]


def refusal(url: str) -> str:
    """What the engine says to a file that it cannot use."""
    with pytest.raises(holdfast.EngineUnavailable) as refused:
        use(url)
    assert refused.value.outcome == "not done"
    return refused.value.problem


# Files that are not ours, or not whole


def garbage(path: Path) -> None:
    path.write_bytes(b"this is a letter to my aunt\n" * 500)


def database_of_something_else(path: Path) -> None:
    write(path, "CREATE TABLE invoices (id INTEGER)")


def database_with_a_meta_of_its_own(path: Path) -> None:
    write(path, "CREATE TABLE meta (key TEXT, value TEXT)")


def database_with_another_meta(path: Path) -> None:
    write(path, "CREATE TABLE meta (name TEXT)")


def newer_version(path: Path) -> None:
    use(f"sqlite:///{path}")
    write(path, "UPDATE meta SET value = '2' WHERE key = 'version'")


def truncated(path: Path) -> None:
    use(f"sqlite:///{path}")
    os.truncate(path, path.stat().st_size // 2)


def torn_header(path: Path) -> None:
    use(f"sqlite:///{path}")
    os.truncate(path, 50)


def scribbled(path: Path) -> None:
    use(f"sqlite:///{path}")
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (garbage, "not a SQLite database"),
        (database_of_something_else, "something else"),
        (database_with_a_meta_of_its_own, "something else"),
        (database_with_another_meta, "something else"),
        (newer_version, "upgrade Holdfast"),
        (truncated, "damaged"),
        (torn_header, "damaged"),
        (scribbled, "damaged"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(
    url: str, path: Path, make: Callable[[Path], None], said: str
) -> None:
    make(path)
    before = path.read_bytes()

    assert said in refusal(url)

    assert path.read_bytes() == before
    assert not list(path.parent.glob("locks.db-wake/*"))


def test_an_empty_file_is_a_new_one(url: str, path: Path) -> None:
    path.touch()
    assert use(url) > 0


def test_a_folder_that_does_not_exist_is_named_in_the_refusal(tmp_path: Path) -> None:
    assert "folder" in refusal(f"sqlite:///{tmp_path}/missing/locks.db")


def test_a_path_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "locks.db").mkdir()
    assert "cannot be opened" in refusal(f"sqlite:///{tmp_path}/locks.db")


# Boots and machines


def test_after_a_reboot_all_sessions_are_over_cells_stay_and_tokens_go_on_above_the_bound(url: str, path: Path) -> None:
    with Puppet(url, 600.0) as puppet:
        token = puppet.takes("k")
        version = puppet.do("set_cell", "config", {"colour": "blue"})["version"]
        puppet.kill()
    ((bound,),) = read(path, "SELECT bound FROM counter")
    write(path, "UPDATE meta SET value = 'the boot before' WHERE key = 'boot_id'")

    with holdfast.connect(url) as locks:
        grant = locks.lock("k").try_acquire()
        assert grant is not None
        assert isinstance(bound, int)
        assert grant.token > bound >= token
        assert locks.cell("config").get() == ({"colour": "blue"}, version)
        assert locks.cell("config").set("red", version) > bound
        grant.release()
    assert read(path, "SELECT value FROM meta WHERE key = 'boot_id'") == [(machine.boot_id(),)]


def test_without_a_reboot_the_session_of_a_killed_process_lasts_for_its_ttl(url: str) -> None:
    with Puppet(url, 600.0) as puppet:
        puppet.takes("k")
        puppet.kill()
    with holdfast.connect(url) as locks:
        assert locks.lock("k").try_acquire() is None


def test_a_file_of_another_machine_is_refused_unless_it_is_adopted(url: str, path: Path) -> None:
    token = use(url)
    for key in ("boot_id", "machine_id"):
        write(path, "UPDATE meta SET value = 'another' WHERE key = ?", key)

    assert "another machine" in refusal(url)
    assert "adopt=1" in refusal(url)

    adopted = use(f"{url}?adopt=1")
    assert adopted > token
    assert use(url) > adopted


def test_the_same_boot_is_the_same_machine_whatever_the_machine_id_says(url: str, path: Path) -> None:
    with Puppet(url, 600.0) as puppet:
        puppet.takes("k")
        write(path, "UPDATE meta SET value = 'a container' WHERE key = 'machine_id'")
        with holdfast.connect(url) as locks:
            assert locks.lock("k").try_acquire() is None
        assert puppet.do("look", "k")["valid"]


def in_time_namespace(url: str) -> subprocess.CompletedProcess[str]:
    """Use the file from a process whose boot clock is a day ahead of ours."""
    code = f"from tests.engines.test_sqlite_file import use; print(use({url!r}))"
    command = ["unshare", "--map-root-user", "--time", "--boottime", "86400", "--fork", sys.executable, "-c", code]
    if os.geteuid() == 0:
        command.remove("--map-root-user")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_another_time_namespace_is_refused(url: str, tmp_path: Path) -> None:
    use(url)
    there = in_time_namespace(url)
    assert there.returncode == 1, there
    assert "another time namespace" in there.stderr, there.stderr
    # It is the file that is refused, not the namespace: there it has files of its own.
    own = in_time_namespace(f"sqlite:///{tmp_path}/own.db")
    assert own.returncode == 0, own.stderr
    assert "another time namespace" in refusal(f"sqlite:///{tmp_path}/own.db")


# What the file lies on


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
def test_a_network_file_system_is_refused(url: str, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """By the name that the kernel gives it: no test can count on a network file system to be there."""
    monkeypatch.setattr(machine, "file_system", lambda path: kind)
    assert f"network file system ({kind})" in refusal(url)


def test_the_kernel_names_the_file_system_that_a_path_lies_on() -> None:
    assert machine.file_system(Path("/proc/self/status")) == "proc"


# Tokens


def test_a_bound_is_raised_on_disk_before_a_token_passes_it(url: str, path: Path) -> None:
    use(url)
    ((last,),) = read(path, "SELECT last FROM counter")
    assert isinstance(last, int)
    write(path, "UPDATE counter SET bound = ?", last + 3)
    with holdfast.connect(url) as locks:
        for _ in range(10):
            with locks.lock("k") as grant:
                ((bound,),) = read(path, "SELECT bound FROM counter")
                assert isinstance(bound, int)
                assert grant.token <= bound


def test_a_power_cut_that_takes_back_the_last_steps_never_repeats_a_token(url: str, path: Path, tmp_path: Path) -> None:
    given: list[int] = []
    use(url)
    ((last,),) = read(path, "SELECT last FROM counter")
    assert isinstance(last, int)
    write(path, "UPDATE counter SET bound = ?", last + 5)
    cut = tmp_path / "cut"
    cut.mkdir()
    with holdfast.connect(url) as locks:
        for number in range(20):
            with locks.lock("k") as grant:
                given.append(grant.token)
            if number == 7:
                # What a cut leaves at the least: everything up to the last synced commit, the bound.
                for file in path.parent.glob("locks.db*"):
                    if file.is_file():
                        shutil.copy(file, cut / file.name)
    write(cut / "locks.db", "UPDATE meta SET value = 'the boot before' WHERE key = 'boot_id'")

    with holdfast.connect(f"sqlite:///{cut}/locks.db") as locks, locks.lock("k") as grant:
        assert grant.token > max(given)


def test_a_deleted_file_does_not_send_tokens_back(url: str, path: Path) -> None:
    before = [use(url) for _ in range(3)]
    for file in path.parent.glob("locks.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    assert use(url) > max(before)


def test_a_session_that_could_not_be_opened_leaves_no_pipe_behind(url: str, path: Path) -> None:
    with Puppet(url, 1.0) as puppet:
        puppet.do("connect")
        database = sqlite3.connect(path, isolation_level=None)
        database.execute("BEGIN IMMEDIATE")
        for _ in range(3):
            assert puppet.do("acquire", "k", 0.0)["error"] == "EngineUnavailable"
        database.close()
        puppet.takes("k", wait=5.0)
        assert len(list(Path(f"{path}-wake").iterdir())) == 1
        eventually(lambda: len(descriptors(puppet.pid, f"{path}-wake")) == 1, "the old pipe was kept open")


def test_a_session_that_was_lost_leaves_no_pipe_behind(url: str, path: Path) -> None:
    with Puppet(url, 0.5) as puppet, Puppet(url) as rival:
        puppet.takes("k")
        puppet.stop()
        rival.takes("k", wait=5.0)
        puppet.go_on()
        puppet.do("wait_lost", "k", 5.0)
        puppet.takes("other", wait=5.0)
        # Closed by whoever sleeps on it, when it wakes: at the latest with the next heartbeat.
        eventually(lambda: len(descriptors(puppet.pid, f"{path}-wake")) == 1, "one pipe is left open")
        assert len(list(Path(f"{path}-wake").iterdir())) == 2


def descriptors(pid: int, under: str) -> list[str]:
    """The files under a folder that a process has open."""
    found = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return [name for name in found if name.startswith(under)]


OPENING = """
import os, sys, time, holdfast
go = time.time() + 0.2
children = []
for number in range(8):
    pid = os.fork()
    if not pid:
        time.sleep(max(0.0, go - 0.005 - time.time()))
        while time.time() < go:
            pass
        try:
            with holdfast.connect(sys.argv[1]) as locks:
                locks.lock("k").acquire().release()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    children.append(pid)
sys.exit(any([os.waitpid(pid, 0)[1] for pid in children]))
"""
"""Eight processes that open one new file in the same moment."""


def test_a_new_file_that_many_open_at_once_is_opened_by_all_of_them(tmp_path: Path) -> None:
    for number in range(10):
        url = f"sqlite:///{tmp_path}/{number}.db"
        opened = subprocess.run(
            [sys.executable, "-m", "tests.faults.code", OPENING, url], capture_output=True, text=True, timeout=60
        )

        assert (opened.returncode, opened.stdout) == (0, "")


def test_a_fork_leaves_nothing_open_although_a_client_connects_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(holdfast.connect(f"sqlite:///{tmp_path}/{number}.db")) for number in range(3)]
        for client in clients:
            client.lock("k").acquire().release()
        before_fork = SqlitePort.before_fork

        def connect_meanwhile(port: SqlitePort) -> None:
            monkeypatch.setattr(SqlitePort, "before_fork", before_fork)
            stack.enter_context(holdfast.connect(f"sqlite:///{tmp_path}/another.db"))  # as another thread may
            before_fork(port)

        monkeypatch.setattr(SqlitePort, "before_fork", connect_meanwhile)
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)

        ports: list[Any] = [client._core.verbs.io.port for client in clients]  # type: ignore[attr-defined]
        assert [item.value for port in ports for item in port.pool.items] == [None] * 3


# A file that goes away while it is in use


def delete(path: Path) -> None:
    for file in path.parent.glob("locks.db*"):
        if file.is_file():
            file.unlink()


def delete_the_folder(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.mkdir()


def move_away(path: Path) -> None:
    for file in path.parent.glob("locks.db*"):
        file.rename(path.parent / f"old-{file.name}")


def put_a_new_one_in_its_place(path: Path) -> None:
    with holdfast.connect(f"sqlite:///{path.parent}/new.db"):
        delete(path)
    (path.parent / "new.db").rename(path)


def put_a_copy_in_its_place(path: Path) -> None:
    """A copy that knows the session, and not what it has taken since."""
    for file in list(path.parent.glob("copy-*")):
        file.replace(path.parent / file.name.removeprefix("copy-"))


def copy(path: Path) -> None:
    source, target = sqlite3.connect(path), sqlite3.connect(path.parent / f"copy-{path.name}")
    source.backup(target)
    source.close()
    target.close()


REPLACED = [delete, delete_the_folder, move_away, put_a_new_one_in_its_place, put_a_copy_in_its_place]


@pytest.mark.parametrize("replace", REPLACED)
@pytest.mark.parametrize("first", ["holder", "rival"])
def test_a_file_that_is_deleted_or_replaced_costs_its_users_what_they_hold_and_makes_no_second_world(
    url: str, path: Path, replace: Callable[[Path], None], first: str
) -> None:
    with holdfast.connect(url, ttl=1.0) as holder, holdfast.connect(url, ttl=1.0) as rival:
        with rival.lock("before"), holder.lock("before the copy"):
            copy(path)
        held = holder.lock("k").acquire()
        also_held = rival.lock("l").acquire()

        replace(path)
        if first == "rival":
            rival.lock("m").acquire().release()

        assert held.lost.wait(5.0)
        assert also_held.lost.wait(5.0)
        for grant in held, also_held:
            with pytest.raises(holdfast.LockLost, match="the database file was deleted or replaced"):
                grant.release()
        assert not holder.list()
        for one, other in (holder, rival), (rival, holder):
            with one.lock("k", wait=5.0) as grant:
                assert grant.token > also_held.token
                assert other.lock("k").try_acquire() is None


async def test_a_waiter_moves_to_the_new_file(url: str, path: Path) -> None:
    async with aio.connect(url, ttl=1.0) as holder, aio.connect(url, ttl=1.0) as waiter:
        held = await holder.lock("k").acquire()
        waiting = asyncio.create_task(waiter.lock("k").acquire(wait=10.0))
        await asyncio.to_thread(eventually, lambda: waiter._core.waiting, "nothing waits")
        delete(path)
        grant = await waiting

        assert grant.valid
        await asyncio.wait_for(held.lost.wait(), 5.0)
        assert await holder.lock("k").try_acquire() is None
        await grant.release()


# The file that nobody has named


def test_a_folder_that_cannot_be_made_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    with pytest.raises(holdfast.EngineUnavailable, match=r"cannot make its folder: Not a directory.*\$HOLDFAST_URL"):
        holdfast.connect()
