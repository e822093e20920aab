"""No call takes an error of another call for the answer of its engine.

A signal handler can raise any public error in the middle of a call. So the recipes and the engines
raise and catch EngineFailure, which no handler can raise, and hand on the rest of what they find out
as values.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from holdfast.engines.etcd.wire import Crowded, Full
from holdfast.engines.postgres.connections import ConnectionsBusy
from holdfast.engines.zookeeper.asking import Dropped, Late
from holdfast.errors import EngineFailure

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
FILES = sorted([*(SOURCE / "engines").rglob("*.py"), *(SOURCE / "locks").rglob("*.py")])

NO_HANDLER_RUNS = {"locks/keeper.py", "locks/ending.py"}
"""What runs in the keeper's thread alone: there the error of an engine that raises the public one is one too."""
ASKS_AS_A_CALLER = {
    "locks/client.py", "engines/etcd/checkup.py", "engines/holdfast/checkup.py", "engines/redis/checkup.py",
    "engines/zookeeper/doctor.py",
}  # fmt: skip
"""What also gets errors from outside of a call: doctors, and the client as the process ends."""


def caught_by(node: ast.AST) -> list[ast.expr]:
    """What an `except` or a `suppress` names."""
    if isinstance(node, ast.ExceptHandler):
        return [] if node.type is None else [node.type]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "suppress":
        return node.args
    return []


def test_the_recipes_and_the_engines_know_a_failure_by_its_own_type() -> None:
    named = {
        file.relative_to(SOURCE).as_posix()
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Name) and node.id == "EngineUnavailable"
    }

    assert named == NO_HANDLER_RUNS | ASKS_AS_A_CALLER


@pytest.mark.parametrize("error", ["Conflict", "LockLost", "NotHeld"])
def test_what_a_recipe_finds_out_it_never_catches(error: str) -> None:
    caught = [
        f"{file.relative_to(SOURCE)}: {ast.unparse(types)}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        for types in caught_by(node)
        if error in {name.id for name in ast.walk(types) if isinstance(name, ast.Name)}
    ]

    assert caught == []


@pytest.mark.parametrize("kind", [EngineFailure, Crowded, Full, Dropped, Late, ConnectionsBusy], ids=str)
def test_a_caller_reads_the_documented_name_of_every_failure(kind: type[EngineFailure]) -> None:
    assert (kind.__name__, kind.__qualname__) == ("EngineUnavailable", "EngineUnavailable")
