"""`holdfast advise`: a few questions, and what follows from the answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from holdfast.advice.questions import QUESTIONS, Question
from holdfast.advice.tree import choose_engine, decide
from holdfast.cli import options, screen
from holdfast.core.urls import shown


def answer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for each question."""
    for question in reversed(QUESTIONS):
        choice = click.Choice(list(question.answers))
        command = click.option(f"--{question.name}", question.parameter, type=choice, help=question.text)(command)
    return command


class Interview:
    """Answers from the options, and from whoever sits at the terminal for the rest."""

    def __init__(self, given: dict[str, str | None], may_ask: bool) -> None:
        self.given, self.may_ask = given, may_ask
        self.answers: dict[str, str] = {}

    def ask(self, question: Question) -> str:
        """The answer to a question, asked once."""
        if question.name not in self.answers:
            self.answers[question.name] = self.given[question.parameter] or self._hear(question)
        return self.answers[question.name]

    def _hear(self, question: Question) -> str:
        if not self.may_ask:
            choices = ", ".join(question.answers)
            raise click.UsageError(f"{question.text} Answer with --{question.name}: {choices}")
        screen.line()
        screen.line(question.text, "bold")
        names = list(question.answers)
        for number, (name, meaning) in enumerate(question.answers.items(), 1):
            screen.line(f"  {number}  {name:<12} {meaning}")
        while True:
            heard: str = click.prompt("Answer", prompt_suffix=" > ").strip()
            if heard in names:
                return heard
            if heard.isascii() and heard.isdigit() and 1 <= int(heard) <= len(names):
                return names[int(heard) - 1]
            screen.line(f"  one of {', '.join(names)}, or its number")


@click.command()
@answer_options
@click.option("--url", metavar="URL", help="Engine URL for the program.  [default: by the answers]")
@options.json_option
def advise(url: str | None, as_json: bool, **given: str | None) -> None:
    """Ask what matters, and recommend: a lock, a fence, or something that needs no lock.

    Answers that are not given as options are asked for on the terminal.

    \b
    Examples:
      holdfast advise
      holdfast advise --what value --machines one
      holdfast advise --what job --if-two-run harm --store-checks yes --machines many --runs redis --json
    """
    interview = Interview(given, may_ask=sys.stdin.isatty() and not as_json)
    advice = decide(interview.ask)
    engine = None if url is not None else choose_engine(interview.ask, advice.strength)
    place = url if advice.strength != "none" else None
    if place is not None and "@" in place:
        place = shown(place)
    if engine is not None:
        place = engine.url
    program = advice.program(place or "")
    if as_json:
        report = {
            "answers": interview.answers,
            "recommendation": advice.name,
            "title": advice.title,
            "reason": advice.reason,
            "url": place,
            "engine_reason": None if engine is None else engine.reason,
            "program": program,
        }
        screen.document(report)
        return
    screen.line()
    screen.line(advice.title, "bold")
    screen.line(advice.reason)
    if place is not None:
        screen.line()
        screen.line(f"Engine: {place}", "bold")
    if engine is not None:
        screen.line(engine.reason)
    screen.line()
    screen.verbatim(program)
