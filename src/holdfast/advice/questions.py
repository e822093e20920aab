"""The questions, each with the answers that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Question:
    """One question. Its name is the option by which it is answered without a terminal."""

    name: str
    text: str
    answers: dict[str, str]
    """Answer -> what it means."""

    @property
    def parameter(self) -> str:
        """Its name as an argument of a Python function."""
        return self.name.replace("-", "_")


WHAT = Question(
    "what",
    "What must not collide?",
    {
        "job": "a piece of work: a nightly job, a migration, a report",
        "result": "work whose result is wanted once: a payment, an order",
        "value": "one small value that many change: a counter, a setting",
        "rows": "rows of a database",
        "several": "several things that have to change together: a transfer",
        "history": "what happened, in order: orders, decisions",
        "entities": "many things, each with work of its own: accounts, devices, queues",
        "leader": "instances of a service, of which one has to be in charge",
        "limit": "too many at once: calls to a service, jobs on a GPU",
    },
)
TWO = Question(
    "if-two-run",
    "What happens if two run at once?",
    {"waste": "work is done twice, nothing worse", "harm": "data are damaged, or money is spent twice"},
)
REPEATABLE = Question(
    "repeatable",
    "Can the work be repeated safely?",
    {"yes": "doing it again changes nothing more", "no": "each time counts"},
)
STORE = Question(
    "store-checks",
    "Can the store of the data check a version or a token as it writes?",
    {
        "yes": "a conditional update, a transaction, a column of ours",
        "no": "it takes every write: a device, a mail server, another company",
    },
)
TAKES = Question(
    "takes",
    "How long does the work take?",
    {
        "moment": "less than a second",
        "longer": "seconds to hours",
        "always": "it goes on for as long as the service runs",
    },
)
MACHINES = Question("machines", "On how many machines does it run?", {"one": "on one", "many": "on several"})
RUNS = Question(
    "runs",
    "Which of these do you already run?",
    {
        "nothing": "none of them",
        "redis": "Redis or Valkey",
        "postgresql": "PostgreSQL",
        "etcd": "etcd",
        "zookeeper": "ZooKeeper",
    },
)

QUESTIONS = (WHAT, TWO, REPEATABLE, STORE, TAKES, MACHINES, RUNS)

Ask = Callable[[Question], str]
"""Gives the answer to a question, wherever it comes from."""
