"""The keys of the simulated etcd: every write has a revision, and earlier ones can be read."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Any

from holdfast.engines.etcd.messages import message

_KeyValue, _Txn, _Response, _Range = map(message, ("KeyValue", "TxnResponse", "ResponseOp", "RangeResponse"))
_Put, _Delete = message("PutResponse"), message("DeleteResponse")
CREATED, MODIFIED = 1, 2
"""What a comparison is about."""


@dataclass(frozen=True, slots=True)
class Version:
    """A key from one write to the next."""

    created: int
    modified: int
    value: bytes | None
    """None: it was removed."""
    lease: int = 0


ABSENT = Version(0, 0, None)


class Keys:
    """What all nodes of etcd agree on."""

    def __init__(self) -> None:
        self.revision = 1
        self._versions: dict[bytes, list[Version]] = {}
        self._sorted: list[bytes] = []
        self.written: list[bytes] = []
        """Keys that were written or removed since somebody last looked."""
        self._wrote = False

    def at(self, key: bytes, revision: int = 0) -> Version:
        """A key as of a revision; 0 is now."""
        for version in reversed(self._versions.get(key, ())):
            if not revision or version.modified <= revision:
                return version
        return ABSENT

    def within(self, start: bytes, end: bytes, revision: int = 0) -> list[bytes]:
        """The keys from one up to another that are there; of one key, if there is no end."""
        first, last = bisect_left(self._sorted, start), bisect_left(self._sorted, end)
        return [
            key for key in (self._sorted[first:last] if end else [start]) if self.at(key, revision).value is not None
        ]

    def under(self, lease: int) -> list[bytes]:
        """The keys that hang on a lease."""
        return [key for key in self._sorted if self.at(key).value is not None and self.at(key).lease == lease]

    def remove(self, keys: list[bytes]) -> None:
        """Remove keys, all at one revision."""
        for key in keys:
            self._write(key, None, 0)
        self._done()

    def _write(self, key: bytes, value: bytes | None, lease: int) -> None:
        before = self.at(key)
        if key not in self._versions:
            self._versions[key] = []
            insort(self._sorted, key)
        revision = self.revision + 1
        created = revision if before.value is None else before.created
        self._versions[key].append(Version(created if value is not None else 0, revision, value, lease))
        self.written.append(key)
        self._wrote = True

    def _done(self) -> None:
        """All that was written together has one revision; a step that has written nothing has none of its own."""
        self.revision += self._wrote
        self._wrote = False

    # Requests

    def range(self, asked: Any) -> Any:
        """Read."""
        found = self.within(asked.key, asked.range_end, asked.revision)
        shown = found[: asked.limit] if asked.limit else found
        kvs = [self._kv(key, self.at(key, asked.revision)) for key in shown]
        return _Range(kvs=kvs, more=len(shown) < len(found), count=len(found))

    @staticmethod
    def _kv(key: bytes, version: Version) -> Any:
        return _KeyValue(
            key=key, create_revision=version.created, mod_revision=version.modified, value=version.value,
            lease=version.lease, version=1,
        )  # fmt: skip

    def compare(self, asked: Any) -> tuple[bool, Any]:
        """Whether what a transaction compares holds, and which of its steps are to be done."""
        holds = all(self._holds(each) for each in asked.compare)
        return holds, asked.success if holds else asked.failure

    def transact(self, asked: Any) -> Any:
        """Compare, then read and write, all at one revision."""
        holds, steps = self.compare(asked)
        responses = [self._step(each) for each in steps]
        self._done()
        return _Txn(succeeded=holds, responses=responses)

    def _holds(self, compare: Any) -> bool:
        assert compare.result == 0, "the lock server only asks whether something is equal"
        assert not compare.range_end, "the lock server only compares single keys"
        found = self.at(compare.key)
        present = found.value is not None
        if compare.target == CREATED:
            return (found.created if present else 0) == int(compare.create_revision)
        assert compare.target == MODIFIED, "the lock server compares creations and last writes"
        return (found.modified if present else 0) == int(compare.mod_revision)

    def _step(self, step: Any) -> Any:
        if step.HasField("request_range"):
            return _Response(response_range=self.range(step.request_range))
        if step.HasField("request_put"):
            put = step.request_put
            self._write(put.key, put.value, put.lease)
            return _Response(response_put=_Put())
        gone = step.request_delete_range
        keys = self.within(gone.key, gone.range_end)
        for key in keys:
            self._write(key, None, 0)
        return _Response(response_delete_range=_Delete(deleted=len(keys)))
