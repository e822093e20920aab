"""What is done to clients and servers on purpose: a row each."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import InvalidRequest
from holdfast.verify.faults.clock import Clock
from holdfast.verify.faults.clock_jump import ClockJump
from holdfast.verify.faults.disk_full import DiskFull
from holdfast.verify.faults.fault import Fault
from holdfast.verify.faults.fsync import Fsync
from holdfast.verify.faults.kill_client import KillClient
from holdfast.verify.faults.partition import Partition
from holdfast.verify.faults.pause_client import PauseClient
from holdfast.verify.faults.server_clock_jump import ServerClockJump
from holdfast.verify.faults.servers import KillServer, PauseServer, RestartServer
from holdfast.verify.faults.wires import Cut, DropReplies, Stall

FAULTS: dict[str, Fault] = {
    each.name: each
    for each in (
        PauseClient(), KillClient(), Cut(), Stall(), DropReplies(), KillServer(), PauseServer(), RestartServer(),
        Partition(), Clock(), ClockJump(), ServerClockJump(), DiskFull(), Fsync(),
    )
}  # fmt: skip


def choose(names: Sequence[str]) -> list[Fault]:
    """The faults that the command line names: `all`, `none`, or some of the table."""
    if list(names) in ([], ["all"]):
        return list(FAULTS.values())
    if list(names) == ["none"]:
        return []
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise InvalidRequest("faults", ",".join(unknown), f"all, none, or some of {', '.join(FAULTS)}")
    return [FAULTS[name] for name in dict.fromkeys(names)]
