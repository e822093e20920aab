"""Watches and the events that they have not fetched, in dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from holdfast.core.table import changes as ch
from holdfast.core.table import questions as ask
from holdfast.core.table.rows import Letter, Session, Watch
from holdfast.core.table.usage import Usage

Key = tuple[str, str]
"""A session and a watch of it."""


class Mailboxes:
    """Who wants to hear of what, and what they have not fetched."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self.watches: dict[Key, Watch] = {}
        self.letters: dict[Key, list[Letter]] = {}
        self.count = 0
        """Of letters, all together."""
        self.wide: dict[Key, Watch] = {}
        """Watches of many names."""
        self._of_cell: dict[tuple[str, str], dict[Key, Watch]] = {}
        """Watches of one cell each, by its kind and name."""

    def hearing(self, kind: str, name: str) -> Iterator[tuple[Key, Watch]]:
        """Those who want to hear of this name, by their keys."""
        near = self._of_cell.get((kind, name), {}) if kind.startswith("cell:") else self.wide
        return iter(sorted((key, watch) for key, watch in near.items() if watch.hears(kind, name)))

    def unfetched(self, q: ask.Mailbox) -> ask.MailboxAnswer | None:
        """The events of a watch after a number; None if there is no such watch."""
        letters = self.letters.get((q.session, q.id))
        if letters is None:
            return None
        found = tuple(letter for letter in letters if letter.number > q.after)
        return ask.MailboxAnswer(self.watches[q.session, q.id], found, letters[0].number if letters else 0)

    def of(self, session: str) -> int:
        """How many watches a session has."""
        return sum(key[0] == session for key in self.watches)

    def furthest_behind(self, sessions: Mapping[str, Session]) -> Key:
        """The watch with most events that were not fetched, of the user who has most of them."""
        of_user: Counter[str] = Counter()
        users = {key: sessions[key[0]].user for key in self.letters}
        for key, user in users.items():
            of_user[user] += len(self.letters[key])
        return max(self.letters, key=lambda key: (of_user[users[key]], len(self.letters[key]), key))

    def put_watch(self, change: ch.PutWatch) -> None:
        watch = change.watch
        key = (watch.session, watch.id)
        self._forget(key)
        self._usage.watch(watch, 1)
        self.watches[key] = watch
        if watch.of_cell:
            self._of_cell.setdefault((watch.kind, watch.prefix), {})[key] = watch
        else:
            self.wide[key] = watch
        self.letters.setdefault(key, [])

    def drop_watch(self, change: ch.DropWatch) -> None:
        key = (change.session, change.id)
        self._forget(key)
        self.count -= len(self.letters.pop(key, ()))

    def drop_session(self, session: str) -> None:
        for key in [key for key in self.watches if key[0] == session]:
            self.drop_watch(ch.DropWatch(*key))

    def _forget(self, key: Key) -> None:
        watch = self.watches.pop(key, None)
        if watch is None:
            return
        self._usage.watch(watch, -1)
        if self.wide.pop(key, None) is not None:
            return
        subject = (watch.kind, watch.prefix)
        hearing = self._of_cell[subject]
        del hearing[key]
        if not hearing:
            del self._of_cell[subject]

    def put_letter(self, change: ch.PutLetter) -> None:
        self.letters[change.letter.session, change.letter.watch].append(change.letter)
        self.count += 1

    def drop_letters(self, change: ch.DropLetters) -> None:
        key = (change.session, change.watch)
        kept = [letter for letter in self.letters[key] if letter.number > change.upto]
        self.count -= len(self.letters[key]) - len(kept)
        self.letters[key] = kept
