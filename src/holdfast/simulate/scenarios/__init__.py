"""The scenarios, one a file. Each is imported when it is wanted: some need a driver that may not be installed."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from holdfast.engines.registry import how_to_get
from holdfast.errors import InvalidRequest
from holdfast.simulate.scenario import Scenario

PLACES = {
    "contention": "contention",
    "crashed-holder": "crashed_holder",
    "split-brain": "split_brain",
    "split-brain-unfenced": "split_brain_unfenced",
    "late-request": "late_request",
    "deadlock": "deadlock",
    "thundering-herd": "thundering_herd",
    "clock-drift": "clock_drift",
    "clock-drift-wild": "clock_drift_wild",
    "power-cut": "power_cut",
    "power-cut-unsynced": "power_cut_unsynced",
    "server-crash": "server_crash",
    "server-crash-hasty": "server_crash_hasty",
    "server-cut": "server_cut",
    "cluster-takeover": "cluster_takeover",
    "cluster-minority": "cluster_minority",
    "cluster-majority": "cluster_majority",
    "cluster-cut": "cluster_cut",
    "cluster-cut-heedless": "cluster_cut_heedless",
    "lost-minority": "lost_minority",
    "lost-majority": "lost_majority",
    "redlock-storm": "redlock_storm",
    "server-storm": "server_storm",
    "cluster-storm": "cluster_storm",
    "storm": "storm",
    "storm-unfenced": "storm_unfenced",
}
"""By name: the module."""


def find(name: str) -> Scenario:
    """The scenario of this name."""
    if name not in PLACES:
        near = get_close_matches(name, PLACES, 1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(PLACES)}"
        raise InvalidRequest("scenario", name, hint)
    try:
        found = import_module(f"{__name__}.{PLACES[name]}").SCENARIO
    except ModuleNotFoundError as error:
        raise InvalidRequest("scenario", name, f"it needs {how_to_get(error)}") from error
    assert isinstance(found, Scenario)
    return found
