"""Bad input is refused before anything is sent, with the rule that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import holdfast
from holdfast import InvalidRequest
from holdfast.engines import registry
from tests.conformance.abilities import needs
from tests.conformance.apis import Api, Front
from tests.conformance.refusals import declined, refused
from tests.conformance.stage import Stage

NAMES: list[Any] = [
    "", "x" * 513, "ü" * 257, "a\nb", "a\x00", "\x7f", "a\u0085b", "/a", "a/", "a//b", "/", ".", "..", "a/./b",
    "a/..", "\ud800", b"bytes", 7, None, ["a"],
]  # fmt: skip

GOOD_NAMES = ["x" * 512, "ü" * 256, "a/b/c", "...", "a.b", ".hidden", "invoice:42", "a b", "日本", "%2F", "a{b}"]

FRONTS: dict[str, Callable[[Front, Any], Any]] = {
    "lock": lambda locks, name: locks.lock(name),
    "rwlock": lambda locks, name: locks.rwlock(name),
    "semaphore": lambda locks, name: locks.semaphore(name, limit=1),
    "lock_all": lambda locks, name: locks.lock_all("good", name),
    "election": lambda locks, name: locks.election(name, value="v"),
    "barrier": lambda locks, name: locks.barrier(name, parties=1),
    "latch": lambda locks, name: locks.latch(name, count=1),
    "cell": lambda locks, name: locks.cell(name),
    "once": lambda locks, name: locks.once(name),
    "partition": lambda locks, name: locks.partition(name),
    "log": lambda locks, name: locks.log(name),
}

VALUES: dict[str, Callable[[Front], Any]] = {
    "wait -1": lambda locks: locks.lock("k", wait=-1),
    "wait nan": lambda locks: locks.lock("k", wait=float("nan")),
    "wait text": lambda locks: locks.lock("k", wait="5"),
    "wait bool": lambda locks: locks.lock("k", wait=True),
    "max_hold 0": lambda locks: locks.lock("k", max_hold=0),
    "max_hold -1": lambda locks: locks.lock("k", max_hold=-1),
    "max_hold nan": lambda locks: locks.lock("k", max_hold=float("nan")),
    "on_lost": lambda locks: locks.lock("k", on_lost="not a function"),
    "note": lambda locks: locks.lock("k", note=7),
    "long note": lambda locks: locks.lock("k", note="x" * 10_000),
    "limit 0": lambda locks: locks.semaphore("k", limit=0),
    "limit -1": lambda locks: locks.semaphore("k", limit=-1),
    "limit bool": lambda locks: locks.semaphore("k", limit=True),
    "limit float": lambda locks: locks.semaphore("k", limit=1.0),
    "limit text": lambda locks: locks.semaphore("k", limit="2"),
    "limit none": lambda locks: locks.semaphore("k", limit=None),
    "value": lambda locks: locks.election("k", value=7),
    "rwlock wait": lambda locks: locks.rwlock("k", wait=-1),
    "lock_all wait": lambda locks: locks.lock_all("k", wait=-1),
    "election wait": lambda locks: locks.election("k", wait=-1),
    "prefix": lambda locks: locks.watch("a//"),
}

CELL_VALUES: dict[str, Callable[[Front], Any]] = {
    "parties 0": lambda locks: locks.barrier("k", parties=0),
    "parties bool": lambda locks: locks.barrier("k", parties=True),
    "count 0": lambda locks: locks.latch("k", count=0),
    "keep -1": lambda locks: locks.latch("k", count=1, keep=-1),
    "once keep": lambda locks: locks.once("k", keep=0),
    "once wait": lambda locks: locks.once("k", wait=-1),
    "member": lambda locks: locks.partition("k", member="a//b"),
    "on_change": lambda locks: locks.partition("k", on_change="not a function"),
}
"""Of what is kept in cells."""

SETTINGS: dict[str, dict[str, Any]] = {
    "ttl 0.09": {"ttl": 0.09},
    "ttl 0": {"ttl": 0},
    "ttl -1": {"ttl": -1.0},
    "ttl nan": {"ttl": float("nan")},
    "ttl inf": {"ttl": float("inf")},
    "ttl none": {"ttl": None},
    "ttl text": {"ttl": "10"},
    "ttl bool": {"ttl": True},
    "namespace empty": {"namespace": ""},
    "namespace path": {"namespace": "a/b"},
    "namespace dot": {"namespace": "a.b"},
    "namespace not text": {"namespace": 7},
    "app": {"app": 7},
    "unknown guarantee": {"require": {"magic"}},
    "guarantee as text": {"require": "consensus"},
}


@pytest.mark.by_turns
async def test_a_name_that_breaks_the_rules_is_refused(stage: Stage, locks: Front) -> None:
    taken = [
        (front, name) for front, build in FRONTS.items() for name in NAMES if not refused(partial(build, locks, name))
    ]
    assert taken == []
    assert await stage.in_use(locks, "good") == []


async def test_a_name_that_breaks_the_rules_cannot_be_looked_at_or_broken(locks: Front) -> None:
    for name in NAMES:
        with pytest.raises(InvalidRequest):
            await locks.inspect(name)
        with pytest.raises(InvalidRequest):
            await locks.break_lock(name)


async def test_an_invalid_request_is_a_value_error_with_its_facts(locks: Front) -> None:
    with pytest.raises(ValueError, match="1 to 512 bytes") as refused:
        locks.lock("a//b")
    assert isinstance(refused.value, InvalidRequest)
    assert (refused.value.argument, refused.value.value) == ("name", "a//b")
    assert "'a//b'" in str(refused.value)


async def test_every_other_name_is_good(stage: Stage, locks: Front, rival: Front) -> None:
    for name in GOOD_NAMES:
        async with locks.lock(name):
            assert await rival.lock(name).try_acquire() is None
            assert await stage.in_use(rival, *GOOD_NAMES) == [name]


async def test_a_value_that_cannot_be_is_refused(stage: Stage, locks: Front) -> None:
    assert [case for case, build in VALUES.items() if not refused(partial(build, locks))] == []
    assert await stage.in_use(locks, "k") == []


@needs("cells", "shared")
async def test_a_value_that_cannot_be_is_refused_for_what_is_kept_in_cells(locks: Front) -> None:
    assert [case for case, build in CELL_VALUES.items() if not refused(partial(build, locks))] == []
    assert locks.target._core.session is None


async def test_a_wait_that_cannot_be_is_refused_at_the_call(stage: Stage, locks: Front) -> None:
    await waits_are_refused(locks.lock("k").acquire, locks.lock_all("k").acquire, locks.election("k").campaign)

    assert await stage.in_use(locks, "k") == []


@needs("cells", "shared")
async def test_a_wait_at_a_latch_or_barrier_that_cannot_be_is_refused_at_the_call(locks: Front) -> None:
    await waits_are_refused(locks.latch("k", count=1).wait, locks.barrier("k", parties=2).wait)


async def waits_are_refused(*calls: Callable[..., Any]) -> None:
    waits: list[Any] = [-1, -0.001, float("nan"), "1", True]
    assert [wait for call in calls for wait in waits if not await declined(call(wait=wait))] == []


@needs("cells")
async def test_a_latch_counts_by_whole_numbers(locks: Front) -> None:
    numbers: list[Any] = [0, -1, True, 1.0, "1"]
    assert [n for n in numbers if not await declined(locks.latch("k", count=3).count_down(n=n))] == []


async def test_settings_that_cannot_be_are_refused(stage: Stage) -> None:
    assert [case for case, given in SETTINGS.items() if not await declined(stage.client(**given))] == []


@pytest.mark.by_turns
@pytest.mark.any_connection
async def test_the_shortest_ttl_is_served(stage: Stage) -> None:
    shortest = (await stage.client()).target._core.engine.shortest_ttl
    client = await stage.client(ttl=shortest)

    assert (await client.lock("k").acquire(wait=5.0)).token > 0
    assert await declined(stage.client(ttl=shortest - 0.01))


@pytest.mark.parametrize("url", [7, "", "sqlite", b"sqlite:///x", ["sqlite:///x"], "sqlite:/x", "://x"])
async def test_what_is_no_url_is_refused(api: Api, url: Any) -> None:
    with pytest.raises(InvalidRequest):
        await api.connect(url)


@pytest.mark.parametrize(("scheme", "nearest"), [("sqlit", "sqlite"), ("sqllite", "sqlite"), ("memroy", "memory")])
async def test_an_unknown_scheme_is_told_the_nearest_one(api: Api, scheme: str, nearest: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{nearest}://"):
        await api.connect(f"{scheme}:///x")


async def test_a_scheme_like_no_other_is_told_all_of_them(api: Api) -> None:
    with pytest.raises(InvalidRequest, match=r"memory://.*sqlite://"):
        await api.connect("zzzzzz://x")


@pytest.mark.any_connection
async def test_an_unknown_url_option_is_refused(stage: Stage) -> None:
    with pytest.raises(InvalidRequest, match="nonsense"):
        await stage.api.connect(f"{stage.url}?nonsense=1")


async def test_an_unknown_url_option_is_told_the_nearest_one(api: Api, tmp_path: Any) -> None:
    with pytest.raises(InvalidRequest, match="'adopt'"):
        await api.connect(f"sqlite:///{tmp_path}/x.db?adpt=1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["adopt=maybe", "adopt=1&adopt=0", "adopt"])
async def test_a_url_option_that_cannot_be_read_is_refused(api: Api, tmp_path: Any, option: str) -> None:
    with pytest.raises(InvalidRequest):
        await api.connect(f"sqlite:///{tmp_path}/x.db?{option}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    ["redis://h?ca=x", "redis://h?verify=0", "redis+sentinel://h/m?cert=x", "redis+cluster://h?key=x", "redlock://a,b,c?ca=x",
     "holdfast://h?cert=x", "holdfast://h?verify=0", "zookeeper://h?ca=x", "etcd://h?server_name=x"],
)  # fmt: skip
async def test_an_option_for_tls_is_refused_where_there_is_none(api: Api, url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"(?i)tls"):
        await api.connect(url)


async def test_a_missing_driver_says_which_extra_to_install(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """An engine whose module imports what is not installed, registered as a third party would."""
    (tmp_path / "needy_engine.py").write_text("import a_driver_that_is_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("needy", "needy_engine:Engine", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: (point,))

    with pytest.raises(InvalidRequest) as refused:
        await api.connect("needy://x")
    assert "holdfast[needy]" in str(refused.value)
    assert "a_driver_that_is_not_installed" in str(refused.value)


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", 7, None])
def test_an_owner_that_cannot_be_is_refused(name: Any) -> None:
    with pytest.raises(InvalidRequest):
        with holdfast.owner(name):
            raise AssertionError("nobody acts as this owner")


async def test_nothing_is_sent_for_what_is_refused(stage: Stage, locks: Front) -> None:
    """A client that was only asked for what it refuses has opened no session."""
    for build in VALUES.values():
        with pytest.raises(InvalidRequest):
            build(locks)
    assert locks.target._core.session is None
