"""Histories of real runs, kept with the verdict that each has to get.

They were recorded by the verifier on the embedded engine, on mutants of it, and on a Redis that
forgets; `broken-unfenced` is the control that loses an update while its writer is paused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.verify import report
from holdfast.verify.history import read
from holdfast.verify.promises import CLAIMS
from holdfast.verify.verdict import judge

RECORDED = Path(__file__).parent / "recorded"

BROKEN = {
    "kept-cell": set(),
    "kept-line": set(),
    "kept-protected": set(),
    "kept-readers": set(),
    "kept-semaphore": set(),
    "broken-cells": {"cells"},
    "broken-exclusion": {"exclusion"},
    "broken-leaks": {"leaks", "progress"},
    "broken-order": {"order"},
    "broken-permits": {"exclusion"},
    "broken-progress": {"progress"},
    "broken-tokens": {"tokens"},
    "broken-unfenced": {"unfenced updates"},
}


def test_every_recorded_history_has_a_known_verdict() -> None:
    assert {file.stem for file in RECORDED.glob("*.jsonl")} == BROKEN.keys()


@pytest.mark.parametrize("name", BROKEN)
def test_a_recorded_history_gets_its_verdict_claim_by_claim(name: str) -> None:
    history = read(RECORDED / f"{name}.jsonl").own()

    assert {claim.name for claim in CLAIMS.values() if claim.check(history).state == "broken"} == BROKEN[name]


@pytest.mark.parametrize("name", BROKEN)
def test_a_recorded_history_can_be_shown(name: str, tmp_path: Path) -> None:
    history = read(RECORDED / f"{name}.jsonl")
    report.write(judge([history]), [history], tmp_path / "report.html")

    assert (tmp_path / "report.html").read_text().count("<svg class=") >= 1
