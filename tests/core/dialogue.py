"""Scripted dialogues with the lock table: a command on each line, and exactly what it comes to.

    # A writer behind readers is not overtaken by a later reader.
    acquire s1 k shared                     -> granted token=1
    acquire s2 k                            -> queued place=1 behind s1
    at 3.5
    release s1 k                            -> done
      => s2 granted k

A comment line begins a dialogue, on a table of its own at time 0. `s1` is a session (opened with a
ttl of 10 s when it is first named, unless `open` was), `s1/x` an owner in it, `k` a lock's name and
`k#2` another claim on it by the same owner. Lines with => are the notices that a command sends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.table import Dictionary, Outcome, apply, cells
from holdfast.core.table import commands as cmd
from holdfast.core.table.changes import DropRow
from holdfast.core.table.rows import Session
from holdfast.model import Claim, Gone, Granted, LockEvent, LockInfo, Party, Place, Refused

COLUMN = 48
ARROW = "-> "
NOTICE = "  => "


@dataclass
class Dialogue:
    """One claim about the table, and the lines that show it."""

    title: str
    lines: list[str] = field(default_factory=list)

    def commands(self) -> Iterator[str]:
        """The lines without what they come to."""
        for line in self.lines:
            if not line.startswith(NOTICE.rstrip()):
                yield line.split(ARROW)[0].rstrip()


def read(text: str) -> list[Dialogue]:
    """The dialogues of a file."""
    found: list[Dialogue] = []
    for line in text.splitlines():
        if line.startswith("# "):
            found.append(Dialogue(line[2:]))
        elif line.strip():
            found[-1].lines.append(line.rstrip())
    return found


def number(value: float) -> str:
    return f"{value:g}"


class Speaker:
    """Says commands to a table of its own and writes down what they come to."""

    def __init__(self) -> None:
        self.table = Dictionary()
        self.now = 0.0
        self.sessions: set[str] = set()
        self.claims: dict[tuple[str, str], Claim] = {}
        self.labels: dict[str, str] = {}
        """By claim id: what the dialogue calls it."""

    def play(self, dialogue: Dialogue) -> list[str]:
        """The dialogue as it really goes."""
        return [line for command in dialogue.commands() for line in self.say(command)]

    def say(self, line: str) -> Iterator[str]:
        """The line with its outcome, and the notices after it."""
        verb, *words = line.split()
        if verb == "at":
            self.now = float(words[0])
            yield line
            return
        plain = [word for word in words if "=" not in word]
        named = dict(word.split("=", 1) for word in words if "=" in word)
        outcome = self.run(getattr(self, f"_{verb}")(*plain, **named))
        yield f"{line:{COLUMN}}{ARROW}{self.show(verb, outcome)}"
        for notice in outcome.notices:
            yield f"{NOTICE}{notice.session} {notice.what} {self.labels.get(notice.subject, notice.subject)}"

    def run(self, command: cmd.Command) -> Outcome:
        return apply(command, self.now, self.table.answer, self.table.put, wall=self.now)

    # Commands

    def claim(self, actor: str, label: str, *flags: str, **settings: str) -> Claim:
        """The claim that the dialogue calls so; made on its first mention."""
        session = actor.partition("/")[0]
        if session not in self.sessions:
            self.run(self._open(session))
        if (actor, label) not in self.claims:
            id_ = f"{session}-{len(self.claims) + 1}"
            limit, max_hold = int(settings.pop("limit", "0")), settings.pop("max_hold", None)
            kind = settings.pop("kind", "permit" if limit else "lock")
            unknown = (set(flags) - {"shared", "subtree", "reentrant", "try"}) | set(settings)
            assert not unknown, unknown
            self.claims[actor, label] = Claim(
                id_, session, actor, kind, label.partition("#")[0],
                "shared" if "shared" in flags else "exclusive", "subtree" in flags, limit, "try" not in flags,
                "reentrant" in flags, None if max_hold is None else float(max_hold),
            )  # fmt: skip
            self.labels[id_] = label
        return self.claims[actor, label]

    def _open(self, session: str, ttl: str = "10") -> cmd.Open:
        self.sessions.add(session)
        return cmd.Open(Session(session, float(ttl), 0.0))

    def _renew(self, session: str) -> cmd.Renew:
        return cmd.Renew(session)

    def _close(self, session: str) -> cmd.Close:
        return cmd.Close(session)

    def _acquire(self, actor: str, label: str, *flags: str, **settings: str) -> cmd.Enter:
        assert (actor, label) not in self.claims, "that claim was made before: say `again`, or give it a #number"
        return cmd.Enter(self.claim(actor, label, *flags, **settings))

    def _acquire_many(self, actor: str, count: str) -> cmd.Enter:
        for position in range(1, int(count)):
            self.run(cmd.Enter(self.claim(actor, f"m{position}")))
        return cmd.Enter(self.claim(actor, f"m{count}"))

    def _again(self, actor: str, label: str) -> cmd.Enter:
        return cmd.Enter(self.claims[actor, label])

    def _look(self, actor: str, label: str) -> cmd.Look:
        return cmd.Look(self.claim(actor, label))

    def _claims(self, session: str, after: str = "", most: str = "1000") -> cmd.OwnClaims:
        return cmd.OwnClaims(session, after, int(most))

    def _release(self, actor: str, label: str) -> cmd.Release:
        return cmd.Release(self.claims[actor, label])

    def _leave(self, actor: str, label: str, *unanswered: str) -> cmd.Leave:
        assert unanswered in ((), ("unanswered",))
        return cmd.Leave(self.claim(actor, label), bool(unanswered))

    def _hand_over(self, actor: str, label: str, ticket: str) -> cmd.HandOver:
        return cmd.HandOver(self.claims[actor, label], ticket)

    def _adopt(self, actor: str, label: str, sender: str, ticket: str, *flags: str, **settings: str) -> cmd.Adopt:
        """`adopt s2 k s1#2 t`: s2 adopts s1's claim k#2 with the ticket t."""
        source, mark, more = sender.partition("#")
        claim = self.claim(actor, label, *flags, **settings)
        return cmd.Adopt(claim, self.claims[source, claim.name + mark + more].id, ticket)

    def _break(self, name: str, *force: str, kind: str = "lock") -> cmd.Break:
        assert force in ((), ("force",))
        return cmd.Break(kind, name, bool(force))

    def _inspect(self, name: str, kind: str = "lock") -> cmd.Inspect:
        return cmd.Inspect(kind, name)

    def _list(self, prefix: str = "", kind: str = "lock") -> cmd.List:
        return cmd.List(prefix, kind)

    def _get(self, name: str) -> cmd.CellGet:
        return cmd.CellGet("cell", name)

    def _set(self, name: str, value: str, version: str | None = None, keep: str | None = None) -> cmd.CellSet:
        return cmd.CellSet("cell", name, value.encode(), _maybe(int, version), _maybe(float, keep))

    def _delete(self, name: str, version: str | None = None) -> cmd.CellSet:
        return cmd.CellSet("cell", name, None, _maybe(int, version))

    def _watch(self, session: str, id_: str, prefix: str = "", cell: str | None = None) -> cmd.Subscribe:
        if session not in self.sessions:
            self.run(self._open(session))
        if cell is not None:
            return cmd.Subscribe(session, id_, cells.watch_kind("cell"), cell)
        return cmd.Subscribe(session, id_, "lock", prefix)

    def _unwatch(self, session: str, id_: str) -> cmd.Unsubscribe:
        return cmd.Unsubscribe(session, id_)

    def _fetch(self, session: str, id_: str, after: str = "0") -> cmd.Fetch:
        return cmd.Fetch(session, id_, int(after))

    def _sweep(self, limit: str = "256") -> cmd.Sweep:
        return cmd.Sweep(int(limit))

    def _pass_on(self, name: str, kind: str = "lock") -> cmd.PassOn:
        return cmd.PassOn(kind, name, counted=False)

    def _pass_on_below(self, actor: str, label: str, after: str = "-1") -> cmd.PassOnBelow:
        return cmd.PassOnBelow(self.claims[actor, label], int(after))

    def _raise(self, above: str) -> cmd.RaiseTokens:
        return cmd.RaiseTokens(int(above))

    # Outcomes

    def show(self, verb: str, outcome: Outcome) -> str:
        text = self.reply(outcome.reply)
        removed = sum(isinstance(change, DropRow) for change in outcome.changes)
        if removed and verb in ("renew", "close", "sweep"):
            text += f" removed={removed}"
        if verb in ("release", "leave") and not outcome.changes:
            text += ", nothing changed"
        return text

    def reply(self, reply: Any) -> str:
        match reply:
            case Granted(token, slot, hold_left):
                return f"granted token={token}{_part('slot', slot)}{_part('hold_left', hold_left)}"
            case cmd.OwnClaimsPage(claims, more):
                shown = (f"{claim.id}={'waits' if token is None else token}" for claim, token in claims)
                return " ".join(["claims", *shown, *(["more"] if more else [])])
            case Place(position, blocker):
                return f"queued place={position}{_behind(blocker)}"
            case Refused(blocker):
                return f"refused{_behind(blocker)}"
            case Gone(reason):
                return f"gone: {reason}"
            case cmd.Deadlocked(cycle):
                links = (f"{link.owner} has {link.holds} and waits for {link.waits_for}" for link in cycle)
                return f"deadlock: {'; '.join(links)}"
            case cmd.Renewed(ttl, gone, next_death):
                lost = "".join(f" gone {self.labels[id_]}: {reason}" for id_, reason in gone)
                return f"renewed ttl={number(ttl)}{_part('next_death', next_death)}{lost}"
            case cmd.Done(more, next_death):
                return f"{'more' if more else 'done'}{_part('next_death', next_death)}"
            case cmd.BreakUnderWay(claims):
                return f"breaking {' '.join(map(self.owned, claims)) or 'nobody'}"
            case cmd.Letters(events, last, overflowed):
                letters = "; ".join(map(self.event, events)) or "nothing"
                return f"{letters} last={last}{' overflowed' if overflowed else ''}"
            case LockInfo():
                return _info(reply)
            case tuple():
                return "; ".join(f"{info.name}: {_info(info)}" for info in reply) or "nothing"
            case cmd.Opened(ttl):
                return f"opened ttl={number(ttl)}"
            case cmd.WrongLimit(limit):
                return f"wrong limit: it is {limit}"
            case cmd.CellValue(value, version):
                return f"{'nothing' if value is None else value.decode()} version={version}"
            case cmd.Mismatch(current):
                return f"mismatch: it is at {current}"
            case _:
                assert reply == cmd.SessionOver(), reply
                return "session over"

    def owned(self, claim_id: str) -> str:
        return f"{claim_id.partition('-')[0]}:{self.labels[claim_id]}"

    def event(self, event: LockEvent) -> str:
        detail = f" ({event.detail})" if event.detail else ""
        return f"{event.type} {event.owner or '-'} {event.name}{_part('token', event.token)}{detail}"


def _maybe(kind: type[Any], text: str | None) -> Any:
    return None if text is None else kind(text)


def _part(name: str, value: float | None) -> str:
    return "" if value is None else f" {name}={number(value)}"


def _behind(blocker: Party | None) -> str:
    return "" if blocker is None else f" behind {blocker.owner}"


def _party(party: Party) -> str:
    return f"{party.owner} {party.mode}{_part('token', party.token)}{_part('slot', party.slot)} age={number(party.age)}"


def _info(info: LockInfo) -> str:
    holders = ", ".join(map(_party, info.holders)) or "nobody"
    waiters = ", ".join(map(_party, info.waiters)) or "nobody"
    return f"held by {holders}; waiting {waiters}{f'; limit {info.limit}' if info.limit else ''}"
