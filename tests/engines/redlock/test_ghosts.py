"""What a try leaves behind whose session ends, or whose release gets lost, while the nodes are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import EngineUnavailable
from holdfast.core import urls
from holdfast.core.table.commands import SessionOver
from holdfast.core.table.rows import Session
from holdfast.engines.redlock.engine import RedlockEngine
from holdfast.engines.redlock.ledger import Debt
from holdfast.engines.redlock.nodes import Answers, NoAnswer, Round
from holdfast.engines.redlock.verbs import UNANSWERED
from holdfast.engines.resp.wire import Request
from holdfast.model import Claim, Gone, Granted, Place
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from tests.engines.redlock.conftest import Nodes

Then = Callable[[Round, Answers], Answers]


class Interrupted:
    """A port to real nodes, with something that happens after a round and before its answers are known."""

    def __init__(self, port: Any) -> None:
        self._port = port
        self.then: dict[str, Then] = {}
        """By script, once."""

    def call(self, request: Round, until: float) -> Answers:
        answers: Answers = self._port.call(request, until)
        asked = request.request
        then = self.then.pop(asked.form.script.name, None) if isinstance(asked, Request) else None
        return answers if then is None else then(request, answers)


def until() -> float:
    return clock.now() + 5.0


def session(id_: str) -> Session:
    return Session(id_, 5.0, 0.0, "app", "host", 1)


def claim(of: str, number: int = 1) -> Claim:
    return Claim(f"{of}-{number}", of, f"{of}/1", "holdfast.lock", "k", "exclusive", False, 0, True)


@pytest.fixture
def engine(nodes: Nodes) -> Iterator[RedlockEngine]:
    made = RedlockEngine(urls.parse(nodes.url), "holdfast")
    yield made
    made.close()


def test_a_grant_of_a_session_that_ended_while_the_nodes_were_asked_is_given_back(
    engine: RedlockEngine, nodes: Nodes
) -> None:
    """The next session's heartbeats kept it for ever: nobody knew that it was held, and nobody else could have it."""
    caller, keeper = engine.blocking(), engine.blocking()
    port = Interrupted(caller.io.port)  # type: ignore[attr-defined]
    caller.io.port = port  # type: ignore[attr-defined]
    run(keeper.open_session(session("old"), until()))

    def another_begins(_: Round, answers: Answers) -> Answers:
        run(keeper.open_session(session("new"), until()))
        return answers

    port.then["redlock_enter"] = another_begins
    reply = run(caller.enter(claim("old"), until()))

    assert isinstance(reply, SessionOver)
    assert nodes.holders("k") == [None] * 5
    run(keeper.renew("new", until()))
    assert isinstance(run(caller.enter(claim("new"), until())), Granted)


def test_a_grant_of_a_client_that_was_closed_while_the_nodes_were_asked_is_given_back(
    engine: RedlockEngine, nodes: Nodes
) -> None:
    caller, keeper = engine.blocking(), engine.blocking()
    port = Interrupted(caller.io.port)  # type: ignore[attr-defined]
    caller.io.port = port  # type: ignore[attr-defined]
    run(keeper.open_session(session("old"), until()))

    def it_is_closed(_: Round, answers: Answers) -> Answers:
        run(keeper.close_session("old", until()))
        return answers

    port.then["redlock_enter"] = it_is_closed

    assert isinstance(run(caller.enter(claim("old"), until())), SessionOver)
    assert nodes.holders("k") == [None] * 5


def test_a_client_may_be_closed_while_its_keeper_tells_a_node_of_a_release(engine: RedlockEngine, nodes: Nodes) -> None:
    """The keeper's thread died of it."""
    keeper, caller = engine.blocking(), engine.blocking()
    port = Interrupted(keeper.io.port)  # type: ignore[attr-defined]
    keeper.io.port = port  # type: ignore[attr-defined]
    run(keeper.open_session(session("mine"), until()))
    engine.ledger.owe(Debt("mine-1", "lock:k", frozenset({2}), clock.now() + 60.0))

    def it_is_closed(_: Round, answers: Answers) -> Answers:
        run(caller.close_session("mine", until()))
        return answers

    port.then["redlock_release"] = it_is_closed
    run(keeper.renew("mine", until()))

    assert engine.ledger.debts == {}


def test_a_waiter_whose_release_may_arrive_late_tries_again_as_another_claim(
    engine: RedlockEngine, nodes: Nodes
) -> None:
    """A late release of the try before would take this one's votes away, and two could hold the lock."""
    verbs, rival = engine.blocking(), RedlockEngine(urls.parse(nodes.url), "holdfast")
    port = Interrupted(verbs.io.port)  # type: ignore[attr-defined]
    verbs.io.port = port  # type: ignore[attr-defined]
    run(verbs.open_session(session("mine"), until()))
    other = rival.blocking()
    run(other.open_session(session("other"), until()))
    assert isinstance(run(other.enter(claim("other"), until())), Granted)

    def nobody_answers(_: Round, answers: Answers) -> Answers:
        return [NoAnswer("no answer in time", True)] * len(answers)

    port.then["redlock_release"] = nobody_answers
    with pytest.raises(EngineUnavailable):
        run(verbs.enter(claim("mine"), until()))
    run(other.release(claim("other"), until()))

    assert run(verbs.look(claim("mine"), until())) == Gone(UNANSWERED)
    assert isinstance(run(verbs.enter(claim("mine", 2), until())), Granted)
    rival.close()


def test_a_waiter_whose_release_was_heard_tries_again_as_the_same_claim(engine: RedlockEngine, nodes: Nodes) -> None:
    verbs, rival = engine.blocking(), RedlockEngine(urls.parse(nodes.url), "holdfast")
    run(verbs.open_session(session("mine"), until()))
    other = rival.blocking()
    run(other.open_session(session("other"), until()))
    assert isinstance(run(other.enter(claim("other"), until())), Granted)

    assert isinstance(run(verbs.enter(claim("mine"), until())), Place)
    run(other.release(claim("other"), until()))
    assert isinstance(run(verbs.look(claim("mine"), until())), Granted)
    rival.close()
