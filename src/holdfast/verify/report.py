"""The verdict as one HTML page that needs nothing else: no script, no font, no picture from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from holdfast.verify import timeline
from holdfast.verify.history import History
from holdfast.verify.verdict import Control, Row, Verdict

BADGES = {
    "kept": "kept",
    "caught": "kept",
    "broken": "broken",
    "verifier broken": "broken",
    "missed": "broken",
    "not promised": "none",
}


def write(verdict: Verdict, histories: Sequence[History], file: Path) -> None:
    """Write the page."""
    file.write_text(page(verdict, histories), encoding="utf-8")


def page(verdict: Verdict, histories: Sequence[History]) -> str:
    """The page as text."""
    histories = [history.own() for history in histories]
    css = resources.files("holdfast.verify").joinpath("report.css").read_text(encoding="utf-8")
    title = escape(f"{verdict.run.target}: {verdict.result}")
    parts = [
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # Even a name that looks like a link to somewhere must not make the page load anything.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<style>\n{css}</style>\n</head>\n<body>",
        *_head(verdict),
        *_claims(verdict),
        *_violations(verdict, histories),
        *_guarantees(verdict),
        *_controls(verdict.controls),
        *_left_out(verdict),
        *_timelines(histories),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def badge(word: str) -> str:
    """A state in its colour; whatever is neither good nor bad is open."""
    return f'<span class="badge {BADGES.get(word, "open")}">{escape(word)}</span>'


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _head(verdict: Verdict) -> Iterator[str]:
    run = verdict.run
    yield f"<header><h1>{escape(run.target)} {badge(verdict.result)}</h1>"
    yield f'<p class="soft">Verified by Holdfast, seed {run.seed}, ttl {run.ttl:g} s</p></header>'
    yield f'<p class="rely">{escape(verdict.paragraph())}</p>'
    if run.command:
        yield f"<h3>Run it again</h3>\n<pre>{escape(run.command)}</pre>"


def _claims(verdict: Verdict) -> Iterator[str]:
    yield "<h2>Claims</h2>"
    rows = []
    for row in verdict.rows:
        why = f'<br><span class="soft">{escape(row.why)}</span>' if row.why else ""
        broken = f"{row.total} of " if row.total else ""
        checked = f"{broken}{row.checked}" if row.checked else "–"
        rows.append(
            [
                escape(row.claim),
                f"{escape(row.sentence)}{why}",
                "yes" if row.promised else "no",
                badge(row.word),
                checked,
            ]
        )
    yield table(("claim", "if kept", "promised", "state", "checked"), rows)


def _violations(verdict: Verdict, histories: Sequence[History]) -> Iterator[str]:
    broken = [row for row in verdict.rows if row.shortest is not None]
    if broken:
        yield "<h2>The shortest story of each violation</h2>"
    for row in sorted(broken, key=lambda each: not each.bad):
        assert row.shortest is not None
        yield f"<h3>{escape(row.claim)} {badge(row.word)}</h3>"
        yield _told(row.story())
        history = _where(row, histories)
        if history is not None:
            window, who = timeline.around(history, row.shortest)
            yield _figure(history, timeline.draw(history, window, who, row.shortest.at))


def _where(row: Row, histories: Sequence[History]) -> History | None:
    found = (history for history in histories if not history.run.control and history.run.workload == row.workload)
    return next(found, None)


def _told(lines: Iterable[str]) -> str:
    """A story; faults and the conclusion stand out."""
    shown = []
    for line in lines:
        style = "conclusion" if " => " in line else "hit" if "FAULT" in line else ""
        shown.append(f'<span class="{style}">{escape(line)}</span>' if style else escape(line))
    return "<pre>" + "\n".join(shown) + "</pre>"


def _guarantees(verdict: Verdict) -> Iterator[str]:
    if verdict.declared:
        yield "<h2>Declared guarantees</h2>"
        rows = [
            [escape(each.guarantee.replace("_", " ")), escape(each.says), badge(each.seen), escape(each.by)]
            for each in verdict.declared
        ]
        yield table(("guarantee", "declared", "state", "tested by"), rows)


def _controls(controls: Sequence[Control]) -> Iterator[str]:
    if controls:
        yield "<h2>Controls</h2>\n<p>Runs that must go wrong. One that does not means that the verifier is blind.</p>"
        rows = [
            [
                escape(each.workload),
                escape(each.claim),
                badge("caught" if each.caught else "missed"),
                escape(each.shortest.summary if each.shortest is not None else each.why),
            ]
            for each in controls
        ]
        yield table(("control", "claim", "state", "what was found"), rows)


def _left_out(verdict: Verdict) -> Iterator[str]:
    if verdict.surprises:
        yield "<h2>Surprises</h2>"
        yield from (f"<pre>{escape(each)}</pre>" for each in verdict.surprises)
    if verdict.left_out:
        yield "<h2>Left out</h2>"
        yield table(("what", "why"), [[escape(what), escape(why)] for what, why in verdict.left_out.items()])


def _timelines(histories: Sequence[History]) -> Iterator[str]:
    yield "<h2>What happened</h2>"
    for history in histories:
        run = history.run
        control = " (a control)" if run.control else ""
        yield f"<h3>{escape(run.workload)}{control}</h3>"
        yield _figure(history, timeline.draw(history))


def _figure(history: History, picture: str) -> str:
    held = [(f"held c{number}", name) for number, name in enumerate(timeline.names(history)[: timeline.COLOURS])]
    samples = [*((style, f"{name} held") for style, name in held), ("waits", "waits"), ("fault", "fault")]
    items = [
        f'<li><svg viewBox="0 0 22 12" aria-hidden="true"><rect class="{style}" width="22" height="12"/></svg>'
        f"{escape(text)}</li>"
        for style, text in samples
    ]
    refused = '<path class="refused" d="M7,2 l8,8 m0,-8 l-8,8"/>'
    lost = '<circle class="lost" cx="11" cy="6" r="4"/>'
    for shape, text in ((refused, "write refused by the fence"), (lost, "told that it is lost")):
        items.append(f'<li><svg viewBox="0 0 22 12" aria-hidden="true">{shape}</svg>{text}</li>')
    return f'<figure><ul class="legend">{"".join(items)}</ul><div class="scroll">{picture}</div></figure>'
