"""Keys of fences in Redis, and the hash slots that they share with what they guard. Pure.

In a cluster one script touches one slot. The fence of resource `account:7` lies in the slot of the
key `account:7`, and so do all keys that carry it as a hash tag: `{account:7}:balance`.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterable
from functools import lru_cache
from itertools import count

from holdfast.errors import InvalidRequest

SLOTS = 16384
PREFIX = "holdfast:1:fence:"


@lru_cache(maxsize=1024)
def fence_key(resource: str) -> str:
    """The key of a resource's fence, in the hash slot that the resource would have as a key."""
    tag = _tagged(resource)
    if "}" in tag:
        # Redis would end the tag there: another word of the same slot takes its place.
        slot = hash_slot(resource)
        tag = next(word for number in count() if hash_slot(word := str(number)) == slot)
    return f"{PREFIX}{{{tag}}}{resource}"


def hash_slot(key: str | bytes) -> int:
    """The hash slot of a key in a cluster."""
    hashed = _tagged(key.decode("latin-1")).encode("latin-1") if isinstance(key, bytes) else _tagged(key).encode()
    return crc_hqx(hashed, 0) % SLOTS


def check_slots(resource: str, keys: Iterable[str | bytes]) -> None:
    """Raise InvalidRequest unless all keys lie in the slot of the resource's fence."""
    slot = hash_slot(resource)
    for key in keys:
        if hash_slot(key) != slot:
            raise InvalidRequest(
                "key",
                key,
                f"in a cluster it has to lie in one hash slot with its fence: name it {{{resource}}}:…, "
                "or give a resource that is the key's own hash tag",
            )


def _tagged(key: str) -> str:
    """The part of a key that Redis hashes: what is between the first { and the next }, unless that is empty."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return tag if opened and closed and tag else key
