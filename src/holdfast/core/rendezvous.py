"""Rendezvous hashing: every key has one owner among the members, and a leaver's keys alone move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b


def weight(member: str, key: str) -> bytes:
    """How strongly a member wants a key; the same on every machine and in every release."""
    return blake2b(f"{len(member)}:{member}{key}".encode(errors="surrogatepass"), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Seat:
    """One member's place in a group: the claim that is its proof of life, and its name.

    Two may have one name, as a process that was killed and the one that took its place do for
    a while. Each has a claim of its own, so there is still one owner a key.
    """

    claim: str
    member: str


def choose(seats: Sequence[Seat], key: str) -> Seat | None:
    """The seat that owns `key`; of two with one name the later; None if there is none."""
    latest = {seat.member: seat for seat in seats}
    return max(latest.values(), key=lambda seat: (weight(seat.member, key), seat.member), default=None)
