"""Faults of one client's connections, made by the proxies before it, or in a network namespace of its own."""

from __future__ import annotations

import time
from abc import abstractmethod

from holdfast.verify.crew import Member
from holdfast.verify.faults.fault import Fault, Scene, Strike
from holdfast.verify.target import Target


class WireFault(Fault):
    """What becomes of a client's bytes: on all of its ways, or, where there are several, on some of them."""

    side = "client"
    needs = frozenset({"wires"})

    def refusal(self, target: Target) -> str:
        if target.direct and target.network is None:
            return target.refused.get("network", "its servers send clients to addresses that no proxy stands before")
        return "" if target.addresses or target.direct else "no proxy can stand between a client and this target"

    def begin(self, scene: Scene) -> Strike | None:
        member = scene.client(exposed=True)
        if member is None:
            return None
        self.spoil(member)
        return Strike(member.name, lambda: heal(member), [member])

    @abstractmethod
    def spoil(self, member: Member) -> None:
        """Do it to all of its connections."""


def heal(member: Member) -> None:
    """Let everything through again, on new connections: one that has lost bytes is never whole again."""
    if member.wire is not None:
        member.wire.heal()
    for proxy in member.proxies:
        proxy.go_down()
    for proxy in member.proxies:
        # One connection may have been on its way in when the door was closed.
        time.sleep(0.05)
        proxy.cut()
        proxy.heal()


class Cut(WireFault):
    """Connections are reset, and new ones refused."""

    name = what = "cut"

    def spoil(self, member: Member) -> None:
        if member.wire is not None:
            member.wire.cut()
        for proxy in member.proxies:
            proxy.go_down()


class Stall(WireFault):
    """Nothing comes through in either direction, and nothing says so."""

    name = what = "stall"

    def spoil(self, member: Member) -> None:
        if member.wire is not None:
            member.wire.stall()
        for proxy in member.proxies:
            proxy.requests.set("stall")
            proxy.replies.set("stall")


class DropReplies(WireFault):
    """What was asked is done, and the answer is lost: then the connection breaks."""

    name = what = "drop-replies"

    def spoil(self, member: Member) -> None:
        if member.wire is not None:
            member.wire.drop_replies()
        for proxy in member.proxies:
            proxy.replies.set("drop")
