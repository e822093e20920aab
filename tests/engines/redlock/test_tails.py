"""A release that is over for its caller before every node has answered: nothing of the rest gets lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from holdfast.core import urls
from holdfast.core.table.commands import Done
from holdfast.core.table.rows import Session
from holdfast.engines.redis.verbs import CLAIMS_A_REQUEST
from holdfast.engines.redlock.engine import RedlockEngine
from holdfast.engines.redlock.ledger import Debt
from holdfast.engines.redlock.nodes import Answers, NoAnswer, Round
from holdfast.engines.redlock.team import MOST_BEHIND
from holdfast.engines.redlock.verbs import RedlockVerbs
from holdfast.engines.resp.blocking import TICK
from holdfast.engines.resp.wire import Plain
from holdfast.model import Claim, Granted, Place
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from tests.conformance.stage import PATIENCE
from tests.engines.redlock.conftest import Nodes

TTL = 300.0
"""Longer than any of these tests: what is gone was given back, and has not expired."""
BEHIND = pytest.mark.parametrize("behind", [(3, 4), (0, 1)], ids=["the last two", "the first two"])
"""Answers are taken in turn while they come at once. The first two are waited for, and what then comes is taken."""


def until() -> float:
    return clock.now() + PATIENCE


def soon(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    ends = clock.now() + PATIENCE
    while not condition():
        assert clock.now() < ends
        threading.Event().wait(0.005)


def claim(number: int, name: str = "k", of: str = "mine") -> Claim:
    return Claim(f"{of}-{number}", of, f"{of}/1", "holdfast.lock", name, "exclusive", False, 0, True)


class Caller:
    """A client's way to the nodes, with a keeper whose heartbeats come when the test says so."""

    def __init__(self, url: str, session: str = "mine") -> None:
        self.engine = RedlockEngine(urls.parse(url), "holdfast")
        self.verbs: RedlockVerbs = self.engine.blocking()
        self.keeper: RedlockVerbs = self.engine.blocking()
        self.session = session
        run(self.keeper.open_session(Session(session, TTL, 0.0, "app", "host", 1), until()))

    def enter(self, number: int, name: str = "k") -> Any:
        return run(self.verbs.enter(claim(number, name, self.session), until()))

    def release(self, number: int, name: str = "k") -> Any:
        return run(self.verbs.release(claim(number, name, self.session), until()))

    def echo(self, word: bytes) -> Answers:
        """What each node says to a word that nobody has said before."""
        limit = self.engine.node_limit
        answers: Answers = self.verbs.io.port.call(Round(Plain(("ECHO", word)), limit), until())  # type: ignore[attr-defined]
        return answers

    def beat(self) -> list[frozenset[int]]:
        """A heartbeat; what is owed after it."""
        run(self.keeper.renew(self.session, until()))
        return self.owed

    @property
    def owed(self) -> list[frozenset[int]]:
        return [debt.nodes for debt in self.engine.ledger.debts]

    @property
    def resting(self) -> frozenset[int]:
        return self.engine.rests.resting()


@pytest.fixture
def connect(nodes: Nodes) -> Iterator[Callable[[str], Caller]]:
    made: list[Caller] = []

    def connected(url: str) -> Caller:
        made.append(Caller(url))
        return made[-1]

    yield connected
    for proxy in nodes.proxies:
        proxy.heal()
    for caller in made:
        caller.engine.close()


@pytest.fixture
def caller(nodes: Nodes, connect: Callable[[str], Caller]) -> Caller:
    """One whose limit is longer than anything here takes, and who has connections to all nodes."""
    return warmed(connect(nodes.url_with_limit(60.0)))


def warmed(caller: Caller) -> Caller:
    """Its connections are made, and the nodes know the scripts."""
    assert isinstance(caller.enter(0), Granted)
    assert caller.release(0) == Done()
    assert caller.echo(b"warm") == [b"warm"] * 5
    return caller


def stall(nodes: Nodes, *behind: int) -> None:
    for node in behind:
        nodes.proxies[node].requests.set("stall")


def heal(nodes: Nodes) -> None:
    for proxy in nodes.proxies:
        proxy.heal()


def free(nodes: Nodes, name: str = "k") -> bool:
    return nodes.holders(name) == [None] * 5


@BEHIND
def test_a_release_is_over_when_a_majority_has_confirmed_it(
    nodes: Nodes, caller: Caller, behind: tuple[int, ...]
) -> None:
    caller.enter(1)
    stall(nodes, *behind)

    assert caller.release(1) == Done()
    assert [holder is not None for holder in nodes.holders("k")] == [node in behind for node in range(5)]
    assert caller.owed == [frozenset(behind)]
    assert caller.resting == frozenset()


def test_a_release_of_what_one_node_has_lost_waits_for_every_node(
    nodes: Nodes, connect: Callable[[str], Caller]
) -> None:
    caller = warmed(connect(nodes.url_with_limit(0.5)))
    caller.enter(1)
    with redis.Redis(port=nodes.servers[0].port, db=nodes.database) as operator:
        operator.flushdb()
    stall(nodes, 4)

    assert caller.release(1) == Done()
    assert 4 in caller.resting


def test_a_node_that_was_not_there_is_owed_too(nodes: Nodes, connect: Callable[[str], Caller]) -> None:
    caller = warmed(connect(nodes.url_with_limit(60.0)))
    caller.enter(1)
    nodes.proxies[0].go_down()
    stall(nodes, 4)

    assert caller.release(1) == Done()
    assert caller.owed == [frozenset({0, 4})]


@BEHIND
def test_an_answer_that_comes_later_pays_and_is_taken_for_no_other(
    nodes: Nodes, caller: Caller, behind: tuple[int, ...]
) -> None:
    before = [proxy.accepted for proxy in nodes.proxies]
    caller.enter(1)
    stall(nodes, *behind)
    caller.release(1)
    heal(nodes)

    assert caller.echo(b"mine") == [b"mine"] * 5
    assert caller.owed == []
    assert free(nodes)
    assert [proxy.accepted for proxy in nodes.proxies] == before


def test_answers_that_come_while_the_next_round_waits_are_told_apart(nodes: Nodes, caller: Caller) -> None:
    """Both are read at once then. By then nobody looks for answers in turn any more."""
    caller.enter(1)
    stall(nodes, 0, 4)
    caller.release(1)
    answers: Answers = []
    waiting = threading.Thread(target=lambda: answers.extend(caller.echo(b"mine")))
    before = nodes.proxies[2].requests.passed
    waiting.start()
    soon(lambda: nodes.proxies[2].requests.passed > before)
    over = clock.now() + 5 * TICK
    soon(lambda: clock.now() > over)
    heal(nodes)
    waiting.join(PATIENCE)

    assert answers == [b"mine"] * 5
    assert caller.owed == []


def test_several_releases_may_be_behind_at_one_node(nodes: Nodes, caller: Caller) -> None:
    for number, name in enumerate(("a", "b", "c")):
        caller.enter(number, name)
    stall(nodes, 3, 4)
    for number, name in enumerate(("a", "b", "c")):
        assert caller.release(number, name) == Done()
    assert caller.owed == [frozenset({3, 4})] * 3
    heal(nodes)

    assert caller.echo(b"mine") == [b"mine"] * 5
    assert caller.owed == []
    assert all(free(nodes, name) for name in ("a", "b", "c"))


def test_whoever_only_gives_back_takes_answers_too(nodes: Nodes, caller: Caller) -> None:
    for number in range(200):
        caller.enter(number, f"k{number}")
    numbers = iter(range(200))
    connections = caller.verbs.io.port._teams.items[0].value.connections  # type: ignore[attr-defined]

    def few_are_behind_after_the_next() -> bool:
        number = next(numbers)
        for connection in connections:
            # However slow this machine is, it gives back so often that no connection is ever idle.
            connection.used = clock.now() + TTL
        caller.release(number, f"k{number}")
        return len(caller.owed) <= MOST_BEHIND

    stall(nodes, 3, 4)
    while few_are_behind_after_the_next():
        continue
    heal(nodes)
    soon(lambda: connections[3].readable() and connections[4].readable())

    soon(few_are_behind_after_the_next)


def test_a_heartbeat_takes_answers_that_nobody_came_for(nodes: Nodes, caller: Caller) -> None:
    """It tells nobody again who has answered: that would leave a mark of the claim on the node."""
    for number, name in enumerate(("a", "b", "c")):
        caller.enter(number, name)
    stall(nodes, 3, 4)
    for number, name in enumerate(("a", "b", "c")):
        caller.release(number, name)
    heal(nodes)
    soon(lambda: caller.beat() == [])

    assert nodes.keys() == [set()] * 5


def test_a_heartbeat_tells_nobody_again_whose_answer_may_still_come(nodes: Nodes, caller: Caller) -> None:
    debt = Debt("mine-1", "lock:k", frozenset({4}), clock.now() + TTL, due=clock.now() + TTL)
    caller.engine.ledger.owe(debt)
    assert caller.beat() == [frozenset({4})]
    assert nodes.keys() == [set()] * 5

    debt.due = 0.0
    assert caller.beat() == []
    assert nodes.keys() == [set()] * 4 + [{"gone:mine-1"}]


def test_what_is_owed_to_a_node_that_was_away_is_told_in_few_requests(nodes: Nodes, caller: Caller) -> None:
    names = [f"mine-{number}" for number in range(CLAIMS_A_REQUEST + 1)]
    for name in names:
        caller.engine.ledger.owe(Debt(name, "lock:k", frozenset({4}), clock.now() + TTL))
    before = nodes.scripts_run(4)

    assert caller.beat() == []

    assert nodes.keys()[4] == {f"gone:{name}" for name in names}
    # Two, and one that the heartbeat asks of every node.
    assert nodes.scripts_run(4) - before == 3


def test_a_node_whose_connection_was_lost_is_told_by_the_heartbeat(nodes: Nodes, caller: Caller) -> None:
    caller.enter(1)
    stall(nodes, 4)
    caller.release(1)
    nodes.proxies[4].cut()
    heal(nodes)
    assert nodes.holders("k")[4] is not None
    caller.echo(b"mine")
    assert caller.owed == [frozenset({4})]

    assert caller.beat() == []
    assert free(nodes)


def test_a_node_that_does_not_know_the_script_is_told_by_the_heartbeat(nodes: Nodes, caller: Caller) -> None:
    caller.enter(1)
    stall(nodes, 4)
    caller.release(1)
    with redis.Redis(port=nodes.servers[4].port) as operator:
        operator.script_flush()
    heal(nodes)
    assert caller.echo(b"mine") == [b"mine"] * 5
    assert caller.owed == [frozenset({4})]

    assert caller.beat() == []
    assert free(nodes)


def test_the_next_round_waits_for_a_node_that_stands_still_no_longer_than_for_any(
    nodes: Nodes, connect: Callable[[str], Caller]
) -> None:
    caller = warmed(connect(nodes.url_with_limit(0.5)))
    caller.enter(1)
    stall(nodes, 4)
    caller.release(1)
    answers = caller.echo(b"mine")

    assert answers[:4] == [b"mine"] * 4
    assert isinstance(answers[4], NoAnswer)
    assert 4 in caller.resting
    heal(nodes)
    soon(lambda: caller.beat() == [])
    assert free(nodes)


def test_a_node_whose_limit_was_over_before_the_next_round_is_not_waited_for(
    nodes: Nodes, connect: Callable[[str], Caller]
) -> None:
    caller = warmed(connect(nodes.url_with_limit(0.5)))
    caller.enter(1)
    stall(nodes, 4)
    caller.release(1)
    over = clock.now() + 0.5
    soon(lambda: clock.now() > over)
    answers = caller.echo(b"mine")

    assert answers[4] == NoAnswer("cannot connect", False)
    assert 4 in caller.resting
    assert caller.owed == [frozenset({4})]


def test_an_interrupt_while_the_rest_is_read_loses_nothing(nodes: Nodes, caller: Caller) -> None:
    caller.enter(1)
    stall(nodes, 4)
    caller.release(1)
    # A majority is enough for it: the rest may be on its way yet.
    soon(lambda: nodes.holders("k")[:4] == [None] * 4)
    before = nodes.proxies[3].requests.passed

    def interrupt() -> None:
        soon(lambda: nodes.proxies[3].requests.passed > before)
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        caller.echo(b"interrupted")
    interrupting.join(PATIENCE)
    assert caller.owed == [frozenset({4})]
    for debt in caller.engine.ledger.debts:
        debt.due = 0.0
    heal(nodes)

    assert caller.echo(b"mine") == [b"mine"] * 5
    assert caller.beat() == []
    assert free(nodes)


def test_whoever_enters_before_the_release_has_arrived_everywhere_keeps_what_it_gets(
    nodes: Nodes, caller: Caller, connect: Callable[[str], Caller]
) -> None:
    """Two nodes still have the former claim. When they let go of it they do not touch another."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in nodes.servers)
    others = [Caller(f"redlock://{hosts}/{nodes.database}?node_limit=60", name) for name in ("next", "third")]
    mine = caller.enter(1)
    stall(nodes, 3, 4)
    caller.release(1)
    theirs = others[0].enter(1)

    assert isinstance(theirs, Granted)
    assert theirs.token > mine.token
    assert nodes.holders("k") == ["next-1"] * 3 + ["mine-1"] * 2
    heal(nodes)
    caller.echo(b"mine")
    assert nodes.holders("k") == ["next-1"] * 3 + [None] * 2
    assert isinstance(others[1].enter(1), Place)
    assert others[0].release(1) == Done()
    for other in others:
        other.engine.close()


@pytest.mark.parametrize("session_too", [True, False], ids=["its session is closed", "its connections are closed"])
def test_a_client_that_closes_reads_what_is_under_way_first(nodes: Nodes, caller: Caller, session_too: bool) -> None:
    caller.enter(1)
    for node in (3, 4):
        nodes.proxies[node].requests.delay = 0.3
    caller.release(1)
    assert caller.owed == [frozenset({3, 4})]
    if session_too:
        run(caller.keeper.close_session("mine", until()))
    else:
        caller.engine.close()

    assert free(nodes)


RELEASING = """
import os, sys, holdfast
locks = holdfast.connect(sys.argv[1])
locks.lock("warm").acquire().release()
held = locks.lock("k").acquire()
print("held", flush=True)
sys.stdin.readline()
held.release()
"""
"""A program that gives its lock back when it is told to."""


def test_a_process_that_ends_reads_what_is_under_way_first(nodes: Nodes) -> None:
    command = [sys.executable, "-c", RELEASING, nodes.url_with_limit(60.0)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        for node in (3, 4):
            nodes.proxies[node].requests.delay = 0.5
        process.communicate("\n")

    assert process.returncode == 0
    assert free(nodes)


FORKING = """
child = os.fork()
if child == 0:
    locks.lock("of the child").acquire().release()
    locks.close()
    os._exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
debts = locks._core.engine.ledger.debts
for number in range(2):
    locks.lock("of the parent").acquire().release()
print("released", flush=True)
sys.stdin.readline()
locks.lock("of the parent").acquire().release()
locks.lock("of the parent").acquire()
print(len(debts), flush=True)
locks.close()
"""


def test_a_fork_reads_nothing_that_is_its_parents(nodes: Nodes) -> None:
    command = [sys.executable, "-c", RELEASING + FORKING, nodes.url_with_limit(60.0)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        accepted = [proxy.accepted for proxy in nodes.proxies]
        for node in (3, 4):
            nodes.proxies[node].replies.delay = 0.2
        process.stdin.write("\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        assert process.stdout.readline() == "released\n"
        heal(nodes)
        out, _ = process.communicate("\n")

    assert (process.returncode, out) == (0, "0\n")
    # The child has connections of its own, one a node for its caller and one for its keeper; the parent made none.
    assert [proxy.accepted - was for proxy, was in zip(nodes.proxies, accepted, strict=True)] == [2] * 5
