"""Versions of cells are tokens: they grow with the base, and one from before a raise overwrites nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Conflict, EngineUnavailable
from holdfast.locks.tokens import raise_tokens
from holdfast.runtime.blocking import run
from tests.engines.zookeeper.patience import eventually
from tests.servers.zookeeper import ZooKeeperServer

FAR = 10**9


@pytest.fixture
def looker(url: str) -> Iterator[holdfast.Client]:
    """One who has no session, so that tokens can be raised beside it."""
    with holdfast.connect(url) as client:
        yield client


def raised(url: str, above: int) -> int:
    """Raise the tokens as an operator does."""
    with holdfast.connect(url) as operator:
        run(raise_tokens(operator._core, above))
    return above


def test_a_version_is_higher_than_the_tokens_before_it(url: str) -> None:
    with holdfast.connect(url) as locks:
        with locks.lock("k") as grant:
            written = locks.cell("c").set("a")
        assert written > grant.token
        assert locks.cell("c").get() == ("a", written)
        assert locks.cell("c").set("b", version=written) > written


def test_raised_tokens_raise_the_token_of_a_key(url: str) -> None:
    with holdfast.connect(url) as locks, locks.partition("workers", "a") as member:
        before = member.token("k")
    above = raised(url, before + FAR)
    with holdfast.connect(url) as locks, locks.partition("workers", "a") as member:
        assert member.token("k") > above


def test_who_looks_on_while_tokens_are_raised_sees_and_writes_higher_versions(
    url: str, looker: holdfast.Client
) -> None:
    cell = looker.cell("c")
    before = cell.set("a")
    above = raised(url, before + FAR)

    value, version = cell.get()
    assert value == "a"
    assert version > above
    above = raised(url, version + FAR)
    assert cell.set("b") > above


def test_who_looks_on_while_tokens_are_raised_sees_the_tokens_of_locks_as_they_are(
    url: str, looker: holdfast.Client
) -> None:
    with holdfast.connect(url) as locks, locks.lock("k") as grant:
        assert looker.inspect("k").holders[0].token == grant.token
    raised(url, grant.token + FAR)
    with holdfast.connect(url) as locks, locks.lock("k") as grant:
        assert looker.inspect("k").holders[0].token == grant.token


def test_a_version_that_another_read_after_a_raise_is_the_same_here(url: str, looker: holdfast.Client) -> None:
    before = looker.cell("c").set("a")
    raised(url, before + FAR)
    with holdfast.connect(url) as other:
        _, version = other.cell("c").get()

    looker.cell("c").set("b", version=version)
    assert looker.cell("c").get()[0] == "b"


@pytest.mark.parametrize("by", [1, 2, FAR])
def test_a_version_from_before_a_raise_overwrites_nothing_that_came_after_it(
    url: str, looker: holdfast.Client, by: int
) -> None:
    before = looker.cell("c").set("a")
    raised(url, before + by)
    with holdfast.connect(url) as other:
        after = other.cell("c").set("theirs")
        with pytest.raises(Conflict) as conflict:
            looker.cell("c").set("mine", version=before)

        assert conflict.value.current == after
        assert other.cell("c").get() == ("theirs", after)


def _refused(client: holdfast.Client, version: int) -> bool:
    """Whether a write that expects this version meets another one; not yet, while the server cannot be reached."""
    try:
        client.cell("c").set("overwritten", version=version)
    except Conflict:
        return True
    except EngineUnavailable:
        return False
    raise AssertionError("it was written")


def test_a_version_from_before_a_restore_overwrites_nothing_that_came_after_it(tmp_path: Path) -> None:
    """ZooKeeper's own version of the cell is the same again, with another value."""
    with ZooKeeperServer() as server:
        with holdfast.connect(server.url) as first:
            first.cell("c").set("a")
        server.kill()
        shutil.copytree(server.folder / "data", tmp_path / "backup")
        server.start()
        with holdfast.connect(server.url) as survivor, holdfast.connect(server.url) as other:
            before = survivor.cell("c").set("lost with the restore")
            server.kill()
            shutil.rmtree(server.folder / "data")
            shutil.copytree(tmp_path / "backup", server.folder / "data")
            server.start()
            raised(server.url, before + FAR)
            other.cell("c").set("theirs")
            for _ in range(30):  # a server turns away who has seen later zxids than its own
                other.cell("filler").set("x")

            eventually(lambda: _refused(survivor, before), "the survivor's next session")
            assert other.cell("c").get()[0] == "theirs"
