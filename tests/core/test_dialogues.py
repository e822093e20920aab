"""The lock table's rules as scripted dialogues (`dialogues/*.txt`; `dialogue.py` says how to read them).

After a change that is meant to alter outcomes, write them anew and review the diff like code:

    HOLDFAST_REWRITE=1 pytest tests/core/test_dialogues.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.core.table import Outcome
from holdfast.core.table.commands import Command
from tests.core import dialogue

FOLDER = Path(__file__).parent / "dialogues"
FILES = sorted(FOLDER.glob("*.txt"))
SCRIPTS = [(path.stem, each) for path in FILES for each in dialogue.read(path.read_text())]


def rewrite(path: Path) -> None:
    """Keep the commands, and write down what they come to now."""
    parts = ["\n".join([f"# {each.title}", *dialogue.Speaker().play(each)]) for each in dialogue.read(path.read_text())]
    path.write_text("\n\n".join(parts) + "\n")


if os.environ.get("HOLDFAST_REWRITE"):
    for _path in FILES:
        rewrite(_path)
    SCRIPTS = [(path.stem, each) for path in FILES for each in dialogue.read(path.read_text())]


@pytest.mark.parametrize(
    "script", [each for _, each in SCRIPTS], ids=[f"{stem}: {each.title}" for stem, each in SCRIPTS]
)
def test_the_table_answers_as_written(script: dialogue.Dialogue) -> None:
    assert dialogue.Speaker().play(script) == script.lines


def test_every_command_of_the_table_is_in_a_dialogue() -> None:
    spoken: set[str] = set()

    class Listener(dialogue.Speaker):
        def run(self, command: Command) -> Outcome:
            spoken.add(type(command).__name__)
            return super().run(command)

    for _, script in SCRIPTS:
        Listener().play(script)
    assert spoken == {command.__name__ for command in Command.__args__}


def test_a_dialogue_with_another_outcome_is_not_what_is_written() -> None:
    (script,) = dialogue.read("# A lie.\nacquire s1 k -> granted token=2\n")
    assert dialogue.Speaker().play(script) != script.lines
