"""`holdfast demo`: the split brain, and the fence that stops it, told by real processes."""

from __future__ import annotations

import time

import click

from holdfast.cli import exit_codes, screen
from holdfast.demo.process import StoryFailed
from holdfast.demo.story import BY_A, BY_B, START, TTL, Event, tell_story
from holdfast.text import printable

INTRODUCTION = f"""\
Two processes, A and B, share an account of {START}. A adds {BY_A} and B adds {BY_B}, each under the
same lock, with a time to live of {TTL:g} s. A is stopped in the middle of it, as a long garbage
collection, a suspended laptop or a paused virtual machine would stop it."""

TITLES = {
    "fenced": "With the fence",
    "unfenced": "The same again, without the fence",
}

CONCLUSION = f"""\
What you saw: the lock did nothing wrong. Its time ran out, so B got it, or nobody could ever have
worked again. But A could not know that it had been asleep, and its write was already on the way.
No lock can stop that. The token can: it grows with every grant, the database keeps the highest one
it has seen, and the check is part of the transaction that writes. With the fence both updates are
there ({START + BY_A + BY_B}); without it one of them was lost without a word ({START + BY_A})."""

STYLES = {"A": "cyan", "B": "yellow", "refused": "bold green", "overwrote": "bold red", "stopped": "magenta"}
"""Colours of the two, and of the events that matter."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the events as JSON, one a line.")
def demo(as_json: bool) -> None:
    """See a split brain, and the fence that stops it.

    Real processes on the embedded engine: A is stopped past its ttl, B takes the lock and writes, A
    wakes and writes too. Exit code 1 if the story goes otherwise.

    \b
    Examples:
      holdfast demo
      holdfast demo --json | jq -r '.text // empty'
    """
    began = time.monotonic()
    tell = _tell_json if as_json else _tell
    if not as_json:
        screen.block(INTRODUCTION)
    for story, title in TITLES.items():
        if not as_json:
            screen.line()
            screen.line(title, "bold")
        try:
            tell_story(story == "fenced", tell)
        except StoryFailed as failure:
            _fail(story, str(failure), as_json)
    took = time.monotonic() - began
    if as_json:
        screen.document({"event": "shown", "ok": True, "seconds": round(took, 2)})
    else:
        screen.block(f"\n{CONCLUSION}\n\nTold in {took:.1f} s.")


def _tell(event: Event) -> None:
    if not screen.on_terminal():
        screen.line(f"{event.at:6.1f} s  {event.who:1}  {event.text}")
        return
    from rich.text import Text

    actor = STYLES.get(event.who, "")
    what = STYLES.get(event.event, actor)
    text = printable(event.text)
    screen.console().print(
        Text.assemble(
            (f"{event.at:6.1f} s  ", "dim"),
            (f"{event.who:1}  ", f"bold {actor}".strip()),
            (text, what),
        ),
        soft_wrap=True,
    )


def _tell_json(event: Event) -> None:
    screen.document(event.as_dict())


def _fail(story: str, problem: str, as_json: bool) -> None:
    """Say loudly what went wrong, and end with an exit code that says so too."""
    if as_json:
        screen.document({"event": "failed", "ok": False, "story": story, "problem": problem})
    screen.tell(f"THE STORY WENT WRONG ({TITLES[story].lower()}): {problem}")
    click.get_current_context().exit(exit_codes.CONFLICT)
