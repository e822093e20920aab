"""The suite covers every engine that is installed, and both APIs have the same shape."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.engines import registry
from tests.conformance.engines import DEPLOYMENTS, ENGINES


def test_every_registered_engine_is_in_the_table() -> None:
    registered = {point.name: point.value for point in entry_points(group="holdfast.engines")}

    assert registered == registry.OWN
    named = {subject.name.partition("?")[0] for subject in ENGINES}
    assert registered.keys() == named - DEPLOYMENTS.keys()


NAMES = (
    "Grant", "Grants", "Lock", "RWLock", "AllLocks", "Election", "Barrier", "Latch", "Cell", "Once", "Partition", "Log",
    "Client",
)  # fmt: skip


def public(found: object) -> set[str]:
    return {name for name in dir(found) if not name.startswith("_")}


@pytest.mark.parametrize("name", NAMES)
def test_both_apis_have_the_same_names(name: str) -> None:
    blocking: Any = getattr(holdfast, name)

    assert public(blocking) == public(getattr(aio, name))


def test_an_engine_of_our_own_is_found_without_a_look_at_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: pytest.fail("it looked"))

    holdfast.connect("memory://looked-for").close()


def test_packages_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("elsewhere", "holdfast.engines.memory:MemoryEngine", registry.GROUP)
    looks: list[str] = []

    def look(group: str) -> tuple[EntryPoint, ...]:
        looks.append(group)
        return (point,)

    monkeypatch.setattr(registry, "_found", {})
    monkeypatch.setattr(registry, "entry_points", look)

    holdfast.connect("elsewhere://looked-for").close()
    holdfast.connect("elsewhere://looked-for").close()

    assert looks == [registry.GROUP]
