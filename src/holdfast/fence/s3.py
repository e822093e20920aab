"""The fence of an object in S3: a conditional write, compared by ETag."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any

from holdfast.errors import EngineUnavailable, InvalidRequest, StaleToken
from holdfast.fence.token import Presented, Token, present

_METADATA = "holdfast-token"
_WRITER = "holdfast-writer"
_HEAD = re.compile(rb"holdfast-fence 1 ([0-9]{1,16}) ([0-9a-f]{32})\n")
_LONGEST_HEAD = 80
_ANY_OBJECT = "object"
_TRIES = 50
_KEPT = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Metadata")
"""What an object keeps when only its token is new."""


@dataclass(frozen=True)
class _Seen:
    """An object as it was found: its highest token, the ETag to compare, and who wrote it. No ETag: no object."""

    token: int
    etag: str | None
    writer: str = ""


class S3Fence:
    """Refuses to write an object under a token lower than one that it was written under.

    Give a client of boto3, of a service that honours If-Match and If-None-Match on PUT. An object
    begins with one line that holds its token and something unique; read it with `read`. The ETag
    follows the content: without that line, content that comes back to an earlier state would bring
    an earlier ETag back, and a stale write compared with it would pass.

    `plain=True` leaves the line out, for readers that know nothing of the fence: the token is then
    in the metadata alone, and the content must never come back to what it was before.
    """

    def __init__(self, client: Any, bucket: str, *, plain: bool = False) -> None:
        self._client, self._bucket, self._plain = client, bucket, plain

    def __repr__(self) -> str:
        return f"S3Fence(bucket={self._bucket!r}, plain={self._plain})"

    def write(self, key: str, data: bytes | str, grant: Token, *, once: bool = False, **options: Any) -> None:
        """Replace the object, or raise StaleToken. `options` go to put_object (ContentType=…).

        The key is the object's resource key. A delete would forget the token: write an empty object.
        """
        presented = present(grant, _ANY_OBJECT, once=once)
        content = data.encode() if isinstance(data, str) else data
        self._put(key, content, presented, f"s3://{self._bucket}/{key}", once, options)

    def read(self, key: str, grant: Token | None = None) -> bytes | None:
        """The object's content without the fence's line; None if there is no object.

        With a grant, nobody with a lower token can write any more once it is read: what is decided on
        it stays true. That writes the object anew; one that is not there is made, empty.
        """
        if grant is not None:
            return self._take_over(key, present(grant, _ANY_OBJECT))
        try:
            body: bytes = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        except self._client.exceptions.NoSuchKey:
            return None
        return body if self._plain else _content(body)

    def check(self, grant: Token, *, resource: str | None = None, once: bool = False) -> None:
        """Raise StaleToken if a higher token was seen for a resource; else remember it, in an object of its own."""
        if self._plain:
            raise InvalidRequest("plain", True, "an object that holds only a token cannot be plain")
        presented = present(grant, resource, once=once)
        self._put(f"holdfast/1/fence/{presented.resource}", b"", presented, presented.resource, once, {})

    def _take_over(self, key: str, presented: Presented) -> bytes:
        if self._plain:
            raise InvalidRequest("plain", True, "content that stays the same keeps its ETag: a read cannot be fenced")
        resource = f"s3://{self._bucket}/{key}"
        for _ in range(_TRIES):
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=key)
            except self._client.exceptions.NoSuchKey:
                found = {}
            body = found["Body"].read() if found else b""
            head = _HEAD.match(body)
            seen = _Seen(0 if head is None else int(head[1]), found.get("ETag"))
            if presented.is_stale(seen.token, once=False):
                raise StaleToken(resource, presented.token, seen.token)
            if presented.shared or (head is not None and seen.token == presented.token):
                return _content(body)
            options = {name: found[name] for name in _KEPT if name in found}
            mark = _head(presented.token, secrets.token_hex(16))
            if self._put_if_unchanged(key, mark, _content(body), seen, options):
                return _content(body)
        raise EngineUnavailable("S3", f"{resource} was changed {_TRIES} times while it was read", "not done")

    def _put(
        self, key: str, content: bytes, presented: Presented, resource: str, once: bool, options: dict[str, Any]
    ) -> None:
        writer = secrets.token_hex(16)
        for _ in range(_TRIES):
            seen = self._look(key)
            if seen.writer == writer:
                return  # It was written after all: the reply was lost, and the client's own retry met our object.
            if presented.is_stale(seen.token, once=once):
                raise StaleToken(resource, presented.token, seen.token)
            highest = seen.token if presented.shared else presented.token
            if self._put_if_unchanged(key, _head(highest, writer), content, seen, options):
                return
        raise EngineUnavailable("S3", f"{resource} was changed {_TRIES} times while it was written", "not done")

    def _look(self, key: str) -> _Seen:
        """The object's highest token, read from what the ETag covers."""
        try:
            if self._plain:
                found = self._client.head_object(Bucket=self._bucket, Key=key)
                told = found["Metadata"]
                return _Seen(int(told.get(_METADATA, 0)), found["ETag"], told.get(_WRITER, ""))
            found = self._client.get_object(Bucket=self._bucket, Key=key, Range=f"bytes=0-{_LONGEST_HEAD - 1}")
            head = _HEAD.match(found["Body"].read())
            if head is None:
                return _Seen(0, found["ETag"])
            return _Seen(int(head[1]), found["ETag"], head[2].decode())
        except self._client.exceptions.ClientError as error:
            if _code(error) in ("404", "NoSuchKey", "NotFound"):
                return _Seen(0, None)
            if _code(error) == "InvalidRange":  # an empty object, of somebody who knows nothing of the fence
                return _Seen(0, self._client.head_object(Bucket=self._bucket, Key=key)["ETag"])
            raise

    def _put_if_unchanged(self, key: str, head: bytes, content: bytes, seen: _Seen, options: dict[str, Any]) -> bool:
        condition = {"IfNoneMatch": "*"} if seen.etag is None else {"IfMatch": seen.etag}
        metadata = {**options.get("Metadata", {}), _METADATA: head.split()[2].decode()}
        if self._plain:
            metadata[_WRITER] = head.split()[3].decode()
        body = content if self._plain else head + content
        try:
            self._client.put_object(
                Bucket=self._bucket, Key=key, Body=body, **condition, **{**options, "Metadata": metadata}
            )
        except self._client.exceptions.ClientError as error:
            # The object was changed, made or removed meanwhile: look again, then judge again.
            if _code(error) in ("PreconditionFailed", "ConditionalRequestConflict", "412", "409", "NoSuchKey"):
                return False
            raise
        return True


def _content(body: bytes) -> bytes:
    """What stands behind the fence's line."""
    head = _HEAD.match(body)
    return body if head is None else body[head.end() :]


def _head(highest: int, writer: str) -> bytes:
    """The line that an object begins with. No two writes have the same."""
    return f"holdfast-fence 1 {highest} {writer}\n".encode()


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
