"""House style that a machine can hold: sizes, names, and no error swallowed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
MOST_LINES_A_FILE = 500
MOST_LINES_A_FUNCTION = 60
VAGUE_NAMES = {"utils", "helpers", "common", "base", "manager"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def long_file(source: str) -> Iterator[str]:
    """A file that does not fit the reader's head."""
    lines = len(source.splitlines())
    if lines > MOST_LINES_A_FILE:
        yield f"{lines} lines, more than {MOST_LINES_A_FILE}"


def listed_items(source: str) -> Iterator[str]:
    """`list(x.items())`: it makes tuples, so garbage may be collected in it, and then another thread may change `x`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "list":
            (made,) = node.args or (None,)
            items = made.func if isinstance(made, ast.Call) else None
            # What a call has just made is nobody else's.
            if isinstance(items, ast.Attribute) and items.attr == "items" and not isinstance(items.value, ast.Call):
                yield f"{node.lineno}: x.copy().items() is one step"


def long_functions(source: str) -> Iterator[str]:
    """Functions longer than a screen, docstring included, decorators not."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES_A_FUNCTION:
                yield f"{node.lineno}: {node.name}() has {lines} lines, more than {MOST_LINES_A_FUNCTION}"


def vague_names(path: Path) -> Iterator[str]:
    """Modules and packages whose name says nothing about what is in them."""
    for part in path.with_suffix("").parts:
        if part.strip("_") in VAGUE_NAMES:
            yield f"{part!r} says nothing: name the noun that it holds"


def timeouts_in_public(source: str) -> Iterator[str]:
    """Public names with the word timeout: it means `ttl` to some and `wait` to others."""
    yield from _timeouts(ast.parse(source))


def _timeouts(scope: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, Function):
            # A dunder such as __call__ is public; other leading underscores are not.
            if node.name.startswith("_") and not node.name.endswith("__"):
                continue
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            arguments += [extra for extra in (node.args.vararg, node.args.kwarg) if extra]
            names = [node.name, *(argument.arg for argument in arguments)]
        elif isinstance(node, ast.ClassDef):
            names = [node.name]
            yield from _timeouts(node)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.asname or alias.name for alias in node.names]
        else:
            # A definition under an `if` or a `try` is public too.
            yield from _timeouts(node)
            continue
        for name in names:
            if "timeout" in name.lower() and not name.startswith("_"):
                yield f"{getattr(node, 'lineno', 0)}: {name!r} is public: say ttl or wait"


def swallowed_errors(source: str) -> Iterator[str]:
    """Handlers that catch everything and do nothing about it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            swallows = _catches_all(node.type) and all(_does_nothing(statement) for statement in node.body)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "suppress":
            swallows = any(_catches_all(argument) for argument in node.args)
        else:
            continue
        if swallows:
            yield f"{node.lineno}: every error is swallowed"


def _catches_all(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(_catches_all(one) for one in caught.elts)
    return caught is None or ast.unparse(caught) in ("Exception", "BaseException")


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _files(*suffixes: str) -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*") if path.suffix in suffixes)


def _public_files() -> list[Path]:
    fronts = {SOURCE / "__init__.py", SOURCE / "aio.py"}
    return [path for path in _files(".py") if path in fronts or path.is_relative_to(SOURCE / "api")]


def _found(files: list[Path], check: Callable[[str], Iterator[str]]) -> list[str]:
    return [f"{path.relative_to(SOURCE)}:{line}" for path in files for line in check(path.read_text())]


def test_no_file_is_too_long() -> None:
    assert _found(_files(".py", ".sql", ".lua"), long_file) == []


def test_no_function_is_too_long() -> None:
    assert _found(_files(".py"), long_functions) == []


def test_no_dictionary_is_listed_by_its_items() -> None:
    assert _found(_files(".py"), listed_items) == []
    assert len(list(listed_items("for key, value in list(self.calls.items()): ..."))) == 1
    assert list(listed_items("for key, value in self.calls.copy().items(): ...; list(calls); list()")) == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [line for path in _files(".py") for line in vague_names(path.relative_to(SOURCE))] == []


def test_the_public_api_does_not_say_timeout() -> None:
    assert _found(_public_files(), timeouts_in_public) == []


def test_no_error_is_swallowed() -> None:
    assert _found(_files(".py"), swallowed_errors) == []


def test_the_whole_source_is_looked_at() -> None:
    assert {SOURCE / "__init__.py", SOURCE / "errors.py", SOURCE / "core" / "names.py"} <= set(_files(".py"))
    assert {SOURCE / "__init__.py", SOURCE / "aio.py"} < set(_public_files())


def test_a_long_file_is_caught() -> None:
    assert list(long_file("x = 1\n" * 500)) == []
    assert list(long_file("x = 1\n" * 501)) == ["501 lines, more than 500"]


@pytest.mark.parametrize("start", ["def f():\n", "async def f():\n", "class C:\n  def f(self):\n"])
def test_a_long_function_is_caught(start: str) -> None:
    assert list(long_functions(start + "    x = 1\n" * 59)) == []
    assert len(list(long_functions(start + "    x = 1\n" * 60))) == 1


@pytest.mark.parametrize("path", ["utils.py", "core/helpers.py", "common/names.py", "engines/_base.py", "manager.py"])
def test_a_vague_name_is_caught(path: str) -> None:
    assert len(list(vague_names(Path(path)))) == 1
    assert list(vague_names(Path("core/database.py"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "def acquire(timeout): ...",
        "def acquire(*, lock_timeout=None): ...",
        "async def acquire(**timeouts): ...",
        "def set_timeout(): ...",
        "class Lock:\n    def acquire(self, timeout=1.0): ...",
        "class Lock:\n    def __call__(self, timeout): ...",
        "class Lock:\n    timeout: float = 1.0",
        "class LockTimeout(Exception): ...",
        "DEFAULT_TIMEOUT = 10.0",
        "from holdfast.errors import LockTimeout",
        "if True:\n    def acquire(timeout): ...",
    ],
)
def test_a_public_timeout_is_caught(source: str) -> None:
    assert len(list(timeouts_in_public(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "def acquire(wait, ttl): ...",
        "def _poll(timeout): ...",
        "class NotAcquired(TimeoutError): ...",
        "def acquire(wait):\n    event.wait(timeout=wait)",
    ],
)
def test_a_timeout_that_nobody_sees_passes(source: str) -> None:
    assert list(timeouts_in_public(source)) == []


@pytest.mark.parametrize(
    "handler",
    [
        "except:\n    pass",
        "except Exception:\n    pass",
        "except BaseException:\n    ...",
        "except (OSError, Exception):\n    'never mind'",
    ],
)
def test_a_swallowed_error_is_caught(handler: str) -> None:
    assert len(list(swallowed_errors(f"try:\n    f()\n{handler}"))) == 1


def test_a_suppressed_error_is_caught() -> None:
    assert len(list(swallowed_errors("with contextlib.suppress(Exception):\n    f()"))) == 1
    assert list(swallowed_errors("with contextlib.suppress(FileNotFoundError):\n    f()")) == []


@pytest.mark.parametrize("handler", ["except OSError:\n    pass", "except Exception:\n    log()", "except:\n    raise"])
def test_a_handled_error_passes(handler: str) -> None:
    assert list(swallowed_errors(f"try:\n    f()\n{handler}")) == []
