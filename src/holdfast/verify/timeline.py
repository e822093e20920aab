"""A history as a picture: who held, who waited, what was done to them, and which writes were refused.

One lane a process, one for each server that was hit, time from left to right. It is plain SVG with
classes, so that the page around it chooses the colours, and a text for every mark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape

from holdfast.verify.finding import Violation
from holdfast.verify.history import GRANTING, Call, Fault, History, Note
from holdfast.verify.holds import deaths, holds, life

WIDTH, LABEL, LANE, TOP, FOOT = 1120.0, 96.0, 26.0, 22.0, 30.0
CLOSE = 0.5
"""Bars of one kind that are closer than this many units are drawn as one."""
COLOURS = 6
"""How many names have a colour of their own; the next ones begin again."""


@dataclass(slots=True)
class Bar:
    """A stretch of time in a lane."""

    start: float
    end: float
    style: str
    told: str
    count: int = 1


@dataclass(slots=True)
class Mark:
    """A moment in a lane."""

    at: float
    style: str
    told: str


@dataclass(slots=True)
class Lane:
    """What is shown of one process or server."""

    name: str
    bars: list[Bar] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


def names(history: History) -> list[str]:
    """What was locked, in the order of first use: the legend of the colours."""
    return list(dict.fromkeys(call.name for call in history.calls if call.op in GRANTING))


def lanes(history: History) -> list[Lane]:
    """All that is shown, before it is cut to a window: servers first."""
    colours = {name: f"held c{number % COLOURS}" for number, name in enumerate(names(history))}
    processes = dict.fromkeys(call.process for call in history.calls if call.op != "inspect")
    servers = dict.fromkeys(fault.target for fault in history.faults if fault.target not in processes)
    found = {name: Lane(name) for name in [*servers, *sorted(processes, key=lambda name: (len(name), name))]}
    (first, last), dead = history.work, deaths(history)
    for fault in history.faults:
        end = last if fault.end is None else fault.end
        found[fault.target].bars.append(Bar(fault.start, end, "fault", _about_fault(fault, first)))
    for hold in holds(history):
        style = colours[hold.call.name] + (" shared" if hold.call.mode == "shared" else "")
        told = f"{hold.call.name} held, token {hold.call.token}, {hold.end - hold.start:.3f} s"
        found[hold.call.process].bars.append(Bar(hold.start, hold.end, style, told))
    for call in history.calls:
        if call.process in found:
            _show(found[call.process], call, dead.get(life(call), last))
    return list(found.values())


def _about_fault(fault: Fault, origin: float) -> str:
    length = "not undone" if fault.end is None else f"{fault.end - fault.start:.2f} s"
    return f"fault: {fault.what} {fault.target} at {fault.start - origin:.2f} s, {length}"


def _show(lane: Lane, call: Call, last: float) -> None:
    """The wait of an acquire; a write, a loss."""
    if call.op in GRANTING:
        end = last if call.end is None else call.end
        told = f"{call.name} asked for, {end - call.start:.3f} s, {call.error or call.outcome}"
        lane.bars.append(Bar(call.start, end, "waits" if call.outcome != "unknown" else "waits unknown", told))
    elif call.op == "write":
        state = {"ok": "wrote", "failed": "refused"}.get(call.outcome, "unsure")
        at = call.start if call.end is None else call.end
        lane.marks.append(Mark(at, state, f"write {call.value} to {call.name}, token {call.token}: {state}"))
    elif call.op == "lost":
        lane.marks.append(Mark(call.start, "lost", f"{call.name}: told that it is lost"))


def draw(
    history: History, window: tuple[float, float] | None = None, only: Iterable[str] = (), at: float | None = None
) -> str:
    """The picture of a window, of all lanes or of some, with a line at one moment."""
    first, last = history.work
    start, end = window or (first, _until(history, last))
    chosen = set(only)
    shown = [lane for lane in lanes(history) if not chosen or lane.name in chosen]
    scale = Scale(start, end)
    height = TOP + LANE * len(shown) + FOOT
    parts = [
        f'<svg class="timeline" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        f'aria-label="Timeline of {escape(history.run.workload or "the run")}">'
    ]
    for number, lane in enumerate(shown):
        parts += _draw_lane(lane, TOP + number * LANE, scale)
    parts += _draw_axis(scale, first, height, history.notes)
    if at is not None and start <= at <= end:
        x = scale.x(at)
        parts.append(f'<line class="moment" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8:.0f}" y2="{height - FOOT:.0f}"/>')
    return "\n".join([*parts, "</svg>"])


def _until(history: History, last: float) -> float:
    """The last call but the looks after the end, which may come much later."""
    times = [call.start if call.end is None else call.end for call in history.calls if call.op != "inspect"]
    return max(times, default=last)


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a moment is on the page."""

    start: float
    end: float

    def x(self, moment: float) -> float:
        part = (moment - self.start) / max(self.end - self.start, 1e-9)
        return LABEL + (WIDTH - LABEL - 10) * min(max(part, 0.0), 1.0)


def _draw_lane(lane: Lane, y: float, scale: Scale) -> Iterator[str]:
    yield f'<line class="lane" x1="{LABEL:.0f}" x2="{WIDTH - 10:.0f}" y1="{y + LANE:.0f}" y2="{y + LANE:.0f}"/>'
    yield f'<text class="who" x="{LABEL - 8:.0f}" y="{y + 18:.0f}">{escape(lane.name)}</text>'
    # Faults behind, waits as a thin line under the holds.
    places = {"fault": (0.0, LANE), "waits": (18.0, 4.0), "held": (5.0, 12.0)}
    for kind, (offset, height) in places.items():
        for bar in _merged([bar for bar in lane.bars if bar.style.startswith(kind)], scale):
            left, width = scale.x(bar.start), scale.x(bar.end) - scale.x(bar.start)
            told = bar.told if bar.count == 1 else f"{bar.count} of them: {bar.told} …"
            yield (
                f'<rect class="{bar.style}" x="{left:.1f}" y="{y + offset:.1f}" width="{max(width, 0.6):.1f}" '
                f'height="{height:.0f}"><title>{escape(told)}</title></rect>'
            )
    for mark in lane.marks:
        if scale.start <= mark.at <= scale.end:
            yield _draw_mark(mark, scale.x(mark.at), y)


def _draw_mark(mark: Mark, x: float, y: float) -> str:
    told = f"<title>{escape(mark.told)}</title>"
    if mark.style == "refused":
        shape = f"M{x - 4:.1f},{y + 7:.1f} l8,8 m0,-8 l-8,8"
        return f'<path class="refused" d="{shape}">{told}</path>'
    if mark.style == "lost":
        return f'<circle class="lost" cx="{x:.1f}" cy="{y + 11:.1f}" r="4">{told}</circle>'
    return f'<rect class="{mark.style}" x="{x - 0.7:.1f}" y="{y + 2:.1f}" width="1.4" height="6">{told}</rect>'


def _merged(bars: list[Bar], scale: Scale) -> list[Bar]:
    """Bars of one style that would be drawn on top of each other, as one that says how many it is."""
    groups: dict[str, list[Bar]] = defaultdict(list)
    for bar in sorted(bars, key=lambda each: each.start):
        if bar.end < scale.start or bar.start > scale.end:
            continue
        group = groups[bar.style]
        if group and bar.style != "fault" and scale.x(bar.start) - scale.x(group[-1].end) < CLOSE:
            group[-1].end = max(group[-1].end, bar.end)
            group[-1].count += 1
        else:
            group.append(Bar(bar.start, bar.end, bar.style, bar.told))
    return [bar for group in groups.values() for bar in group]


def _draw_axis(scale: Scale, origin: float, height: float, notes: Iterable[Note]) -> Iterator[str]:
    span = scale.end - scale.start
    step = next((step for step in STEPS if span / step <= 12), STEPS[-1])
    y = height - FOOT
    tick = -(-(scale.start - origin) // step)
    while tick * step + origin <= scale.end:
        x = scale.x(tick * step + origin)
        yield f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP:.0f}" y2="{y + 4:.0f}"/>'
        yield f'<text class="time" x="{x:.1f}" y="{y + 18:.0f}">{tick * step:.6g} s</text>'
        tick += 1
    for note in notes:
        if note.what in ("heal", "end") and scale.start <= note.at <= scale.end:
            x = scale.x(note.at)
            yield f'<line class="note" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6:.0f}" y2="{y:.0f}"/>'
            yield f'<text class="time" x="{x:.1f}" y="{TOP - 8:.0f}">{note.what}</text>'


STEPS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600)


def around(history: History, broken: Violation) -> tuple[tuple[float, float], list[str]]:
    """The window and the lanes that show a violation."""
    times = [broken.at]
    who = []
    for record in broken.records:
        if isinstance(record, Call):
            times += [record.start, record.start if record.end is None else record.end]
            who.append(record.process)
        elif isinstance(record, Fault):
            times.append(record.start)
            who.append(record.target)
    first, last = min(times), max(times)
    pad = max((last - first) * 0.08, 0.002)
    begun, over = history.work
    return (max(first - pad, begun), min(last + pad, over)), who
