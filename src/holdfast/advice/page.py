"""The decision tree as a page: `python -m holdfast.advice.page > docs/choosing.md`."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.advice import answers as give
from holdfast.advice import questions as q
from holdfast.advice.tree import ENGINES, SERVER, SQLITE, Path, choose_engine, walk

HEAD = """\
# Do you need a lock?

The best lock is the one that is not needed. `holdfast advise` asks the questions below and answers with a recommendation, the reason, an engine and a program of ten lines; with options it answers without a terminal, and with `--json` for other programs. This page is made from the same tree.

```console
$ holdfast advise
$ holdfast advise --what job --if-two-run harm --store-checks yes --machines many --runs redis
```
"""  # noqa: E501


def page() -> str:
    """The whole page."""
    return "\n".join(
        [HEAD, "## The questions\n", *tree(), "\n## On which engine\n", *engines(), *recommendations(), ""]
    )


def tree() -> Iterator[str]:
    """Every way through the tree, as nested lists; a question is written once where ways part."""
    before: Path = ()
    for path, advice in walk():
        shared = 0
        while shared < len(path) and path[: shared + 1] == before[: shared + 1]:
            shared += 1
        for depth in range(shared, len(path)):
            question, answer = path[depth]
            indent = "    " * depth
            parts_here = depth != shared or not before or before[depth][0] is not question
            if depth == 0 and not before:
                yield f"**{question.text}**\n"
            elif depth and parts_here:
                yield f"{indent}*{question.text}*\n"
            last = depth == len(path) - 1
            leads = f" → [{advice.title}](#{anchor(advice)})" if last else "\n"
            yield f"{indent}- `{answer}`: {question.answers[answer]}{leads}"
        before = path


def engines() -> Iterator[str]:
    """Which engine for which answers."""
    yield "Where something is kept at all:\n"
    yield f"- on one machine: `{SQLITE.url}`. {SQLITE.reason}"
    yield f"- on several, and you run nothing yet: `{SERVER.url}`. {SERVER.reason}"
    for runs, choice in ENGINES.items():
        yield f"- on several, and you run {q.RUNS.answers[runs]}: `{choice.url}`. {choice.reason}"
    known = {q.MACHINES.name: "many", q.RUNS.name: "redis"}
    weak = choose_engine(lambda question: known[question.name], "strong")
    assert weak is not None
    yield f"\nWhere nothing at the other end can refuse a late write, Redis is the exception: {weak.reason[0].lower()}{weak.reason[1:]}\n"  # noqa: E501


def recommendations() -> Iterator[str]:
    """Each recommendation with its program."""
    yield "## The answers\n"
    for advice in give.ALL:
        yield f"### {advice.title} {{ #{anchor(advice)} }}\n\n{advice.reason}\n"
        yield f"```python\n{advice.program(SQLITE.url)}```\n"


def anchor(advice: give.Advice) -> str:
    """Where a recommendation is on the page."""
    return advice.name.replace("_", "-")


if __name__ == "__main__":
    print(page(), end="")
