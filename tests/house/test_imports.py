"""Imports point one way, and `core` stays pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"

# From the bottom up: a part may import those of the rows below it, and itself.
LAYERS = (("text",), ("errors", "model"), ("core",), ("runtime",), ("engines",), ("locks",), ("api",))
_API_AND_BELOW = {part for layer in LAYERS for part in layer}

# What each part may import beside itself. The root's own names (`from holdfast import connect`) are "".
ALLOWED: dict[str, set[str]] = {
    part: {lower for below in LAYERS[:height] for lower in below}
    for height, layer in enumerate(LAYERS)
    for part in layer
} | {
    "": _API_AND_BELOW,
    "aio": _API_AND_BELOW,
    "optimistic": _API_AND_BELOW,
    "fence": _API_AND_BELOW | {"", "aio"},
    "dashboard": _API_AND_BELOW | {"", "aio"},
    "verify": _API_AND_BELOW | {"", "aio", "fence"},
    # The simulator runs the lock server in virtual time too; its runs are judged by the verifier's checkers.
    "simulate": _API_AND_BELOW | {"verify", "server"},
    # For users' tests: clients in front of a table that loses things.
    "testing": _API_AND_BELOW | {"", "aio", "fence"},
    "bench": _API_AND_BELOW | {"", "aio"},
    # The server runs the table, and knows no front.
    # Of the engines it uses the wire to etcd.
    "server": {"text", "errors", "model", "core", "runtime", "engines"},
    # The story of `holdfast demo`: a user's program, which needs the public names only.
    "demo": {"", "errors", "fence"},
    # Questions and answers: text, and nothing that it speaks of.
    "advice": set(),
    # The command line is the top: it starts every other part.
    "cli": _API_AND_BELOW
    | {"", "aio", "fence", "dashboard", "verify", "server", "bench", "demo", "advice", "simulate"},
    "__main__": {"cli"},
}

# All that `core` may import from outside. A list of what is pure, not of what is not: a clock has many names.
# fmt: off
PURE = (
    "__future__", "abc", "base64", "binascii", "bisect", "collections", "copy", "dataclasses", "difflib",
    "enum", "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "re",
    "string", "struct", "textwrap", "types", "typing", "unicodedata", "urllib.parse", "zlib",
)
# fmt: on


@dataclass(frozen=True)
class Import:
    """One imported name, and whether only the type checker sees it."""

    line: int
    target: str
    typing_only: bool


class _Collector(ast.NodeVisitor):
    def __init__(self, package: str) -> None:
        self.package = package
        self.found: list[Import] = []
        self._typing_only = False

    def _add(self, node: ast.AST, target: str) -> None:
        self.found.append(Import(getattr(node, "lineno", 0), target, self._typing_only))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            parents = self.package.split(".")
            above = parents[: len(parents) - node.level + 1]
            module = ".".join([*above, module] if module else above)
        for alias in node.names:
            self._add(node, f"{module}.{alias.name}")

    def visit_If(self, node: ast.If) -> None:
        before = self._typing_only
        self._typing_only = before or ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for child in node.body:
            self.visit(child)
        self._typing_only = before
        for child in node.orelse:
            self.visit(child)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in ("import_module", "__import__") and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                self._add(node, first.value)
        self.generic_visit(node)


def imports(source: str, package: str) -> list[Import]:
    """Every import of a module that lies in `package`, those inside functions and by name included."""
    collector = _Collector(package)
    collector.visit(ast.parse(source))
    return collector.found


def part_of(module: str) -> str:
    """The part that a name under `holdfast` belongs to; "" for the names of the root itself."""
    first = module.removeprefix("holdfast").removeprefix(".").partition(".")[0]
    return first if first in ALLOWED else ""


def violations(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """What in the source of `module` breaks the rules, a line each."""
    part = module.removeprefix("holdfast").removeprefix(".").partition(".")[0]
    if part not in ALLOWED:
        yield f"{module}: {part!r} has no place in the layers yet"
        return
    package = module if is_package else module.rpartition(".")[0]
    for found in imports(source, package):
        where = f"{module}:{found.line}"
        if found.target.partition(".")[0] == "holdfast":
            target = part_of(found.target)
            if (part, target) == ("errors", "model") and found.typing_only:
                continue
            if target != part and target not in ALLOWED[part]:
                yield f"{where}: {part or 'the root'} imports {found.target}"
        elif part == "core" and not any(f"{found.target}.".startswith(f"{pure}.") for pure in PURE):
            yield f"{where}: core imports {found.target}, which is not known to be pure"


def _modules() -> Iterator[tuple[Path, str, bool]]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ["holdfast", *path.relative_to(SOURCE).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        yield path, ".".join(parts[:-1] if is_package else parts), is_package


def test_imports_point_one_way_and_core_is_pure() -> None:
    found = [
        line
        for path, module, is_package in _modules()
        for line in violations(path.read_text(), module, is_package=is_package)
    ]

    assert found == []


def test_the_whole_source_is_looked_at() -> None:
    modules = {module for _, module, _ in _modules()}

    assert {"holdfast", "holdfast.errors", "holdfast.model", "holdfast.core"} <= modules


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("holdfast.model", "from holdfast.core.names import covers"),
        ("holdfast.model", "from holdfast.errors import LockLost"),
        ("holdfast.errors", "from holdfast.model import Party"),
        ("holdfast.errors", "if TYPE_CHECKING:\n    pass\nelse:\n    from holdfast.model import Party"),
        ("holdfast.errors", "if TYPE_CHECKING:\n    from holdfast.core.table import Table"),
        ("holdfast.core.table", "import holdfast.runtime.io"),
        ("holdfast.core.table", "from ..runtime import io"),
        ("holdfast.runtime.io", "def later():\n    from holdfast.engines import memory"),
        ("holdfast.runtime.io", "if TYPE_CHECKING:\n    from holdfast.engines.memory import MemoryEngine"),
        ("holdfast.engines.memory", "from holdfast import locks"),
        ("holdfast.engines.memory", "import importlib\nimportlib.import_module('holdfast.locks.lock')"),
        ("holdfast.locks.lock", "from holdfast.api.client import Client"),
        ("holdfast.locks.lock", "from holdfast import connect"),
        ("holdfast.locks.lock", "import holdfast"),
        ("holdfast.api.client", "from holdfast.fence import SqlFence"),
        ("holdfast.fence.sql", "from holdfast.cli.main import main"),
        ("holdfast.server.wire", "from holdfast.locks.lock import Lock"),
        ("holdfast.server.wire", "from holdfast.api import client"),
        ("holdfast", "from holdfast.cli.main import main"),
        ("holdfast.aio", "from holdfast.fence import SqlFence"),
        ("holdfast.oddments", "import re"),
    ],
)
def test_an_import_against_the_direction_is_caught(module: str, source: str) -> None:
    assert len(list(violations(source, module))) == 1


@pytest.mark.parametrize(
    "name",
    [
        "time",
        "datetime",
        "socket",
        "threading",
        "random",
        "secrets",
        "uuid",
        "asyncio",
        "os",
        "select",
        "sqlite3",
        "subprocess",
        "logging",
        "redis",
        "urllib.request",
        "concurrent.futures",
    ],
)
def test_a_clock_a_socket_a_thread_or_chance_in_core_is_caught(name: str) -> None:
    inside_a_function = f"def later():\n    from {name} import something"

    assert len(list(violations(f"import {name}", "holdfast.core.table"))) == 1
    assert len(list(violations(inside_a_function, "holdfast.core.table"))) == 1
    assert list(violations(f"import {name}", "holdfast.runtime.blocking")) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("holdfast.errors", "if TYPE_CHECKING:\n    from holdfast.model import Party"),
        ("holdfast.core.table", "from collections.abc import Iterator\nfrom urllib.parse import unquote"),
        (
            "holdfast.core.table",
            "from holdfast.core import names\nfrom .names import covers\nfrom ..model import Claim",
        ),
        (
            "holdfast.locks.lock",
            "from holdfast.engines import registry\nfrom holdfast.errors import LockLost",
        ),
        ("holdfast", "from holdfast.api.client import connect"),
        (
            "holdfast.cli.main",
            "import holdfast\nfrom holdfast import aio, connect\nfrom holdfast.fence import SqlFence",
        ),
        ("holdfast.server.wire", "from holdfast.core.table import Table"),
    ],
)
def test_an_import_in_the_right_direction_passes(module: str, source: str) -> None:
    assert list(violations(source, module)) == []


def test_a_relative_import_in_a_package_is_resolved_from_the_package_itself() -> None:
    assert list(violations("from .names import covers", "holdfast.core", is_package=True)) == []
    assert len(list(violations("from ..locks import lock", "holdfast.core", is_package=True))) == 1
