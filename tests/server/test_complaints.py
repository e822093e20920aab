"""Warnings that a stranger can cause are bounded, and none is lost."""

from __future__ import annotations

import pytest

from holdfast.server.complaints import MOST, Complaints


def test_those_over_the_limit_of_a_second_are_told_as_a_number(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for number in range(MOST + 5):
        complaints.add("TLS handshake refused", f"peer {number}", "a problem")
    assert [getattr(record, "peer", None) for record in caplog.records] == [f"peer {n}" for n in range(MOST)]

    complaints.second_over()

    assert [getattr(record, "left_out", None) for record in caplog.records[MOST:]] == [5]


def test_the_next_second_tells_of_each_again(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for _ in range(MOST):
        complaints.add("TLS handshake refused", "peer", "a problem")
    complaints.second_over()
    complaints.add("TLS handshake refused", "another", "a problem")
    complaints.second_over()

    assert [record.message for record in caplog.records] == ["TLS handshake refused"] * (MOST + 1)
