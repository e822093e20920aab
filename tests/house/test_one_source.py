"""No recipe is written twice: the two APIs are one text, up to `await`, and hold no logic of their own."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import cast

import pytest

API = Path(__file__).parents[2] / "src" / "holdfast" / "api"
TWINS = ("blocking", "asyncio")
FACADES = [
    "AllLocks", "Barrier", "Cell", "Client", "Election", "Grant", "Grants", "Latch", "Lock", "Log", "Once",
    "Partition", "RWLock",
]  # fmt: skip

OWN = {"__enter__", "__exit__", "__aenter__", "__aexit__", "lost", "locked", "__call__", "__repr__", "_begin_body",
       "_body", "_leave", "_record", "_under"}  # fmt: skip
"""What differs by nature: how a `with` ends (an asyncio body is cancelled), and what an Event is."""


class Plain(ast.NodeTransformer):
    """Take away what makes a method blocking or asynchronous."""

    def visit_Await(self, node: ast.Await) -> ast.AST:
        return cast(ast.AST, self.visit(node.value))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "run":
            return node.args[0]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        fields = {name: getattr(node, name) for name in ast.FunctionDef._fields if hasattr(node, name)}
        return ast.FunctionDef(**fields)


def methods(source: str, facade: str) -> dict[str, str]:
    """Each method of a class, with neither `await` nor `run`, as text that can be compared."""
    tree = ast.parse(source)
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == facade)
    plain = {}
    for node in found.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in OWN:
            plain[node.name] = ast.dump(Plain().visit(node))
    return plain


def loops(source: str) -> list[str]:
    """Functions of an API module that loop over awaits or pause: recipes in the wrong place."""
    bad = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                pauses = isinstance(inner, ast.Call) and ast.unparse(inner.func).endswith((".sleep", "verbs.enter"))
                if pauses or isinstance(inner, ast.While | ast.AsyncFor):
                    bad.append(node.name)
    return bad


def modules(api: str) -> dict[str, str]:
    """The modules of one API: their sources by name."""
    return {path.stem: path.read_text() for path in (API / api).glob("*.py")}


def module_of(facade: str) -> str:
    """Where a class is, which is the same place in both APIs."""
    declared = re.compile(rf"^class {facade}[(:]", re.MULTILINE)
    found = {name for api in TWINS for name, source in modules(api).items() if declared.search(source)}
    assert len(found) == 1, f"{facade} is in {found}"
    return found.pop()


@pytest.mark.parametrize("facade", FACADES)
def test_both_apis_delegate_in_the_same_words(facade: str) -> None:
    module = module_of(facade)
    blocking, asynchronous = (methods(modules(api)[module], facade) for api in TWINS)

    assert blocking
    assert blocking == asynchronous


@pytest.mark.parametrize("api", TWINS)
def test_an_api_module_holds_no_recipe(api: str) -> None:
    assert {name: loops(source) for name, source in modules(api).items() if loops(source)} == {}


@pytest.mark.parametrize("api", TWINS)
def test_every_public_class_is_compared(api: str) -> None:
    trees = [ast.parse(source) for source in modules(api).values()]
    classes = {node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}

    assert classes - {"Scoped", "Stream", "Connecting"} == set(FACADES)


def test_a_twin_that_drifted_is_seen() -> None:
    one = "class Lock:\n    def acquire(self, wait):\n        return run(recipe(self, wait))\n"
    same = "class Lock:\n    async def acquire(self, wait):\n        return await recipe(self, wait)\n"
    other = "class Lock:\n    async def acquire(self, wait):\n        return await recipe(self, None)\n"

    assert methods(one, "Lock") == methods(same, "Lock")
    assert methods(one, "Lock") != methods(other, "Lock")


def test_a_recipe_in_an_api_module_is_seen() -> None:
    assert loops("async def acquire():\n    while True:\n        await asyncio.sleep(1)\n") == ["acquire", "acquire"]
