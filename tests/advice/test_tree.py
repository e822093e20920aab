"""The decision tree: every way through it leads somewhere, and every recommendation can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.advice import answers as give
from holdfast.advice.answers import ALL, Advice
from holdfast.advice.page import page
from holdfast.advice.questions import QUESTIONS, RUNS, STORE, TAKES, TWO, WHAT, Question
from holdfast.advice.tree import ENGINES, SERVER, SQLITE, choose_engine, decide, walk
from holdfast.core.urls import parse

DOCS = Path(__file__).parents[2] / "docs"


def by(**known: str) -> Advice:
    return decide(lambda question: known[question.parameter])


def test_every_recommendation_can_be_reached() -> None:
    assert {advice.name for _, advice in walk()} == {advice.name for advice in ALL}


def test_every_answer_is_on_some_way() -> None:
    on_the_way = {(question.name, answer) for path, _ in walk() for question, answer in path}

    for question in (WHAT, TWO, STORE, TAKES):
        assert {(question.name, answer) for answer in question.answers} <= on_the_way


def test_no_question_is_asked_twice_and_none_is_asked_in_vain() -> None:
    ways = dict(walk())

    for path in ways:
        names = [question.name for question, _ in path]
        assert len(names) == len(set(names)) <= 5
        siblings = [other for other in ways if len(other) >= len(path) and other[: len(path) - 1] == path[:-1]]
        assert len({ways[other].name for other in siblings}) > 1, f"the last question of {names} changes nothing"


@pytest.mark.parametrize(
    ("answers", "advice"),
    [
        ({"what": "value"}, give.CELL),
        ({"what": "result"}, give.ONCE),
        ({"what": "history"}, give.LOG),
        ({"what": "entities", "takes": "longer"}, give.PARTITION),
        ({"what": "rows", "store_checks": "yes", "takes": "moment"}, give.OPTIMISTIC),
        ({"what": "job", "if_two_run": "waste", "takes": "moment", "repeatable": "yes"}, give.NO_LOCK),
        ({"what": "job", "if_two_run": "waste", "takes": "longer"}, give.LOCK),
        ({"what": "job", "if_two_run": "harm", "store_checks": "yes"}, give.FENCED_LOCK),
        ({"what": "job", "if_two_run": "harm", "store_checks": "no"}, give.STRONG_LOCK),
    ],
    ids=lambda value: value.name if isinstance(value, Advice) else "",
)
def test_it_recommends(answers: dict[str, str], advice: Advice) -> None:
    assert by(**answers) is advice


def test_the_actor_model_and_event_sourcing_are_among_the_answers() -> None:
    titles = " ".join(advice.title for advice in ALL)

    assert "actor model" in titles
    assert "Event sourcing" in titles


def engine(strength: give.Strength, **known: str) -> object:
    def ask(question: Question) -> str:
        return known[question.parameter]

    return choose_engine(ask, strength)


def test_the_engine_is_one_that_is_there_already() -> None:
    assert engine("none") is None
    assert engine("any", machines="one") is SQLITE
    assert engine("any", machines="many", runs="nothing") is SERVER
    for runs in ENGINES:
        assert engine("fenced", machines="many", runs=runs) is ENGINES[runs]
    assert set(ENGINES) | {"nothing"} == set(RUNS.answers)


@pytest.mark.parametrize("runs", ["redis", "postgresql"])
def test_where_nothing_is_checked_what_may_grant_twice_comes_with_a_warning(runs: str) -> None:
    assert "twice" in str(engine("strong", machines="many", runs=runs))


def test_where_nothing_is_checked_it_is_said_how_the_others_come_by_a_quorum() -> None:
    assert "no quorum is needed" in str(engine("strong", machines="one"))
    assert "--store etcd://" in str(engine("strong", machines="many", runs="nothing"))


def test_every_engine_url_is_one() -> None:
    for choice in (SQLITE, SERVER, *ENGINES.values()):
        assert parse(choice.url).scheme in choice.url


def test_the_page_is_made_from_the_tree() -> None:
    assert (DOCS / "choosing.md").read_text() == page(), "python -m holdfast.advice.page > docs/choosing.md"


def test_every_question_has_answers() -> None:
    assert all(len(question.answers) > 1 for question in QUESTIONS)
