"""What the pages say that a machine can compare with the code: options, limits, names, and the lines to type."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

import holdfast
from holdfast import aio
from holdfast.bench.subject import PEERS
from holdfast.cli import main
from holdfast.cli.options import KINDS
from holdfast.engines import registry
from holdfast.engines.postgres.address import OWN_OPTIONS
from holdfast.server import settings
from holdfast.server.dispatch import Commands
from holdfast.server.limits import Limits
from holdfast.simulate.scenarios import PLACES
from holdfast.verify.faults import FAULTS
from holdfast.verify.targets import TARGETS
from holdfast.verify.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SERVER = ROOT / "src" / "holdfast" / "server"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"])
OWN_PAGES = {"serve": "server.md", "verify": "verify.md", "bench": "bench.md", "simulate": "simulate.md"}
"""Commands whose options are on a page of their own; those of the others are in cli.md."""
EVERYWHERE = {"--json", "--url", "--namespace", "--controls"}
ENGINE_PAGES = {"rediss": "redis", "redis+sentinel": "redis", "redis+cluster": "redis"}


def page(name: str) -> str:
    return (DOCS / name).read_text()


def unsaid(names: Iterator[str] | list[str], text: str) -> list[str]:
    """Those of the names that the text does not say as code, alone or with what belongs to them."""
    return [name for name in names if not re.search(rf"`[^`\n]*(?<![\w-]){re.escape(name)}(?![\w-])[^`\n]*`", text)]


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command, with the words that run it."""
    context = click.Context(main.cli)
    for name in main.COMMANDS:
        command = main.cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", one) for below, one in command.commands.items())
        else:
            yield name, command


def options_of(command: click.Command) -> list[str]:
    found = [option for parameter in command.params for option in parameter.opts + parameter.secondary_opts]
    return [option for option in found if option.startswith("--")]


@pytest.mark.parametrize("scheme", sorted(registry.OWN))
def test_every_option_of_a_url_is_on_the_page_of_its_engine(scheme: str) -> None:
    module, _, name = registry.OWN[scheme].partition(":")
    engine = getattr(__import__(module, fromlist=[name]), name)
    own = OWN_OPTIONS if scheme == "postgresql" else engine.options

    assert unsaid(sorted(own), page(f"engines/{ENGINE_PAGES.get(scheme, scheme)}.md")) == []


def test_every_option_of_a_command_is_documented() -> None:
    assert [
        (name, option) for name, command in commands() for option in options_of(command)
        if option not in EVERYWHERE and not re.search(rf"{option}(?![\w-])", page(OWN_PAGES.get(name, "cli.md")))
    ] == []  # fmt: skip


def typed_lines() -> Iterator[tuple[str, str]]:
    """The lines that begin with `$ holdfast` on any page, without what a shell takes for itself."""
    for where in PAGES:
        for line in re.findall(r"^ *\$ (?:.* && )?holdfast (.*)$", where.read_text(), re.MULTILINE):
            yield where.name, re.split(r" +(?:#|\||>>?|&)(?: |$)", line)[0]


def test_every_line_to_type_has_a_command_and_options_that_exist() -> None:
    known, wrong = dict(commands()), []
    for where, line in typed_lines():
        words = shlex.split(line.partition(" -- ")[0])
        found = known.get(" ".join(words[:2])) or known.get(words[0])
        options = {word for word in words if word.startswith("--")}
        if found is None or options - set(options_of(found)):
            wrong.append((where, line))

    assert wrong == []
    assert len(list(typed_lines())) > 50


def test_every_name_of_the_api_is_documented() -> None:
    text = "\n".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    text += page("concepts.md") + page("engines/index.md") + page("engines/postgresql.md")
    calls = [name for name in dir(holdfast.Client) if not name.startswith("_")]
    errors = {name: getattr(holdfast, name) for name in holdfast.__all__ if inspect.isclass(getattr(holdfast, name))}
    facts = {
        (name, fact)
        for name, error in errors.items()
        if issubclass(error, holdfast.HoldfastError) and error is not holdfast.HoldfastError
        for fact in list(inspect.signature(error).parameters)
    }

    assert [name for name in calls if not re.search(rf"\b{name}\b", text)] == []
    assert unsaid(["owner", *(name for name in inspect.signature(aio.connect).parameters)], text) == []
    assert unsaid([field.name for field in fields(holdfast.Guarantees)], page("engines/index.md")) == []
    rows = {row[0]: "|".join(row) for row in re.findall(r"^\| `(\w+)`(.*)$", page("api/errors.md"), re.MULTILINE)}
    assert [(name, fact) for name, fact in sorted(facts) if f"`{fact}`" not in rows.get(name, "")] == []


def test_every_setting_limit_and_command_of_the_server_is_documented() -> None:
    wire, server = page("wire.md"), page("server.md") + page("cluster.md")
    limits = dict(re.findall(r"^\| (`\w+`(?:, `\w+`)?) \| ([^|]*) \|", wire.partition("## Limits")[2], re.MULTILINE))

    assert [key for key in sorted(settings.KNOWN) if not re.search(rf"^\[?{key}\b", server, re.MULTILINE)] == []
    assert unsaid([field.name for field in fields(Limits)], " ".join(limits)) == []
    for names, defaults in limits.items():
        for name, told in zip(re.findall(r"\w+", names), defaults.split(", "), strict=False):
            assert in_words(name, getattr(Limits(), name)) in told, (name, told)
    assert unsaid([name for name in command_names() if name.startswith("HF.")], wire) == []


def command_names() -> list[str]:
    source = "\n".join(path.read_text() for path in Path(inspect.getfile(Commands)).parent.glob("*.py"))
    return sorted(set(re.findall(r'"(HF\.[A-Z]+)"', source)))


def in_words(name: str, value: int) -> str:
    """A default as wire.md writes it."""
    if name in ("min_ttl", "max_ttl", "idle", "login"):
        return {100: "100 ms", 86_400_000: "1 day", 0: "off", 10_000: "10 s"}[value]
    if re.search("bytes|value|put|frame|writes", name):
        unit, size = next((unit, size) for unit, size in (("GiB", 30), ("MiB", 20), ("KiB", 10)) if value >> size)
        return f"{value >> size} {unit}"
    return f"{value:,}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("verify.md", [*FAULTS, *TARGETS, *WORKLOADS]),
        ("simulate.md", list(PLACES)),
        ("bench.md", list(PEERS)),
        ("cli.md", list(KINDS)),
        ("api/inspect.md", list(KINDS)),
    ],
)
def test_every_choice_is_on_its_page(name: str, words: list[str]) -> None:
    assert unsaid(words, page(name)) == []


@pytest.mark.parametrize("where", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_python_sample_can_be_read(where: Path) -> None:
    for indent, sample in re.findall(r"^( *)```python\n(.*?)^ *```", where.read_text(), re.MULTILINE | re.DOTALL):
        code = "\n".join(line.removeprefix(indent) for line in sample.splitlines())
        compile(code, str(where), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


@pytest.mark.parametrize("where", [path for path in PAGES if not path.is_relative_to(DOCS)], ids=lambda path: path.name)
def test_every_link_outside_of_the_built_pages_leads_somewhere(where: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", where.read_text())

    assert [link for link in links if not (where.parent / link).exists()] == []


def test_every_target_of_make_that_a_page_names_is_there() -> None:
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for path in PAGES for name in re.findall(r"`make ([a-z]+)", path.read_text())}

    assert named - known == set()
    assert len(named) > 4


def test_the_checks_that_contributing_tells_of_are_those_that_are_run() -> None:
    told = re.findall(r"^\$ \.venv/bin/(pytest --workers .*)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)

    assert len(told) == 1
    assert told[0] in (ROOT / "scripts" / "check").read_text()


TELLING = re.compile(r"""\b(?:log\.(?:debug|info|warning|error|critical|exception)|complaints\.add)\(\s*"([^"]+)\"""")


def test_every_event_of_the_server_s_log_is_on_its_page() -> None:
    told = {event for path in (SERVER.rglob("*.py")) for event in TELLING.findall(path.read_text())}
    shown = page("server.md")

    assert len(told) > 30
    # One that is long is shown with its first words.
    assert [event for event in sorted(told) if f"`{event.partition(': ')[0]}" not in shown] == []
