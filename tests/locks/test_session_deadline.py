"""A session's deadline, where the engine grants it less or more than before."""

from __future__ import annotations

import pytest

from holdfast.core.deadline import deadline
from holdfast.locks.session import Session


@pytest.fixture
def session() -> Session:
    return Session("s", 30.0, 100.0)


def test_a_confirmed_heartbeat_moves_the_deadline_and_an_older_one_does_not_move_it_back(session: Session) -> None:
    session.confirm(110.0, 30.0, 110.1)
    session.confirm(105.0, 30.0, 110.2)

    assert session.deadline == deadline(110.0, 30.0)


def test_a_shorter_ttl_moves_the_deadline_back(session: Session) -> None:
    session.confirm(110.0, 4.0, 110.1)

    assert (session.deadline, session.ttl) == (deadline(110.0, 4.0), 4.0)


def test_a_reply_that_is_read_late_does_not_bring_back_the_longer_ttl(session: Session) -> None:
    session.confirm(110.0, 4.0, 110.1)
    session.confirm(109.0, 30.0, 110.2)

    assert (session.deadline, session.ttl) == (deadline(110.0, 4.0), 4.0)


def test_a_longer_ttl_counts_from_a_request_that_was_sent_after_the_shorter_one_was_known(session: Session) -> None:
    session.confirm(110.0, 4.0, 110.1)
    session.confirm(111.0, 30.0, 111.1)

    assert (session.deadline, session.ttl) == (deadline(111.0, 30.0), 30.0)


def test_word_of_a_shorter_ttl_moves_the_deadline_back_only(session: Session) -> None:
    session.shorten(110.0, 4.0, 110.1)
    assert (session.deadline, session.ttl) == (deadline(110.0, 4.0), 4.0)

    session.shorten(115.0, 4.0, 115.1)
    assert session.deadline == deadline(110.0, 4.0)


def test_a_heartbeat_whose_answer_is_read_after_word_of_a_shorter_ttl_does_not_bring_back_the_longer_one(
    session: Session,
) -> None:
    session.shorten(110.0, 4.0, 110.1)
    session.confirm(109.0, 30.0, 110.2)

    assert session.deadline <= deadline(110.0, 4.0)
