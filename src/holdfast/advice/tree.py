"""The decision tree: what to recommend, and on which engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.advice import answers as give
from holdfast.advice import questions as q
from holdfast.advice.answers import Advice, Strength
from holdfast.advice.questions import Ask, Question


def decide(ask: Ask) -> Advice:
    """What to do. Asks only what matters, given the answers so far."""
    match ask(q.WHAT):
        case "value":
            return give.CELL
        case "result":
            return give.ONCE
        case "history":
            return give.LOG
        case "leader":
            return give.ELECTION
        case "limit":
            return give.SEMAPHORE
        case "several":
            return give.DATABASE if ask(q.STORE) == "yes" and ask(q.TAKES) == "moment" else give.LOCK_ALL
        case "entities":
            return give.PARTITION if ask(q.TAKES) != "moment" else decide_job(ask)
        case "rows":
            return give.OPTIMISTIC if ask(q.STORE) == "yes" and ask(q.TAKES) == "moment" else decide_job(ask)
    return decide_job(ask)


def decide_job(ask: Ask) -> Advice:
    """What to do about work that one at a time should do."""
    if ask(q.TWO) == "waste":
        takes = ask(q.TAKES)
        if takes == "always":
            return give.ELECTION
        return give.NO_LOCK if takes == "moment" and ask(q.REPEATABLE) == "yes" else give.LOCK
    return give.FENCED_LOCK if ask(q.STORE) == "yes" else give.STRONG_LOCK


@dataclass(frozen=True)
class Choice:
    """An engine, and why this one."""

    url: str
    reason: str


SQLITE = Choice("sqlite:///locks.db", "One machine needs no server: the locks are in a file.")
SERVER = Choice(
    "holdfast://127.0.0.1:7420", "You run nothing that could keep locks: `holdfast serve` does, with its own store."
)
ENGINES = {
    "redis": Choice("redis://127.0.0.1:6379/0", "You run it, and it is the quickest to hand a lock on."),
    "postgresql": Choice("postgresql://127.0.0.1/app", "You run it; its lock table is as durable as your data."),
    "etcd": Choice("etcd://127.0.0.1:2379", "You run it, and it rests on a quorum."),
    "zookeeper": Choice("zookeeper://127.0.0.1:2181", "You run it, and it rests on a quorum."),
}
WEAK = {
    "one": Choice(SQLITE.url, "On one machine nothing fails over, so no quorum is needed: the locks are in a file."),
    "nothing": Choice(
        SERVER.url,
        "You run nothing that could keep locks: `holdfast serve` does, durably on one node, and on a quorum with "
        "`--store etcd://a,b,c`.",
    ),
    "redis": Choice(
        ENGINES["redis"].url,
        "You run it, but after a failover it may grant a lock twice, and nothing at the other end would notice: "
        "prefer an engine with a quorum, etcd:// or zookeeper://.",
    ),
    "postgresql": Choice(
        ENGINES["postgresql"].url,
        "You run it, and one server is as durable as your data; but a failover to a replica that was behind may grant "
        "a lock twice: let commits wait for a replica, or prefer an engine with a quorum, etcd:// or zookeeper://.",
    ),
}
"""Where only a quorum would do: what the others are worth there."""


def choose_engine(ask: Ask, strength: Strength) -> Choice | None:
    """Where to keep it; None where nothing is kept."""
    if strength == "none":
        return None
    runs = "one" if ask(q.MACHINES) == "one" else ask(q.RUNS)
    if strength == "strong" and runs in WEAK:
        return WEAK[runs]
    return {"one": SQLITE, "nothing": SERVER, **ENGINES}[runs]


Path = tuple[tuple[Question, str], ...]
"""Questions and their answers, in the order in which they were asked."""


class _Unanswered(Exception):
    """The walk has come to a question that it has no answer to yet."""

    def __init__(self, question: Question) -> None:
        self.question = question
        super().__init__(question.name)


def walk(path: Path = ()) -> Iterator[tuple[Path, Advice]]:
    """Every way through the tree, with what it leads to."""
    known = {question.name: answer for question, answer in path}

    def ask(question: Question) -> str:
        if question.name not in known:
            raise _Unanswered(question)
        return known[question.name]

    try:
        found = decide(ask)
    except _Unanswered as open_:
        for answer in open_.question.answers:
            yield from walk((*path, (open_.question, answer)))
    else:
        yield path, found
