"""Which machine this is, which boot, and what a file lies on."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

_PROC = "/proc"
"""Only Linux has it. Elsewhere the programs of the system tell."""
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_SYSTEM_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
"""Of the programs of the system that are asked."""

NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys",
    "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs",
    "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "webdav",
})  # fmt: skip


def boot_id() -> str:
    """A value that changes with every boot of this machine, containers included. OSError if the system has none."""
    try:
        return Path(_PROC, "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # macOS has the first one, FreeBSD the second one. The time of the boot would not do: it changes with the clock.
        found = ask("sysctl", "-n", "kern.bootsessionuuid") or ask("sysctl", "-n", "kern.boot_id")
        if not found:
            raise OSError("this system does not tell one boot from the next") from None
        return found


def machine_id() -> str:
    """A value that is this machine's own; its host name where it has none."""
    for path in _MACHINE_IDS:
        try:
            found = Path(path).read_text().strip()
        except OSError:
            continue
        if found:
            return found
    return _host_uuid() or f"host:{socket.gethostname()}"


def _host_uuid() -> str:
    """What macOS and the BSDs know a machine by; empty elsewhere. A host name there changes with the network."""
    import ctypes  # only read where it is needed: it would take a tenth of a program's start

    system = ctypes.CDLL(None)
    if not hasattr(system, "gethostuuid"):
        return ask("sysctl", "-n", "kern.hostuuid")
    found, patience = (ctypes.c_ubyte * 16)(), (ctypes.c_long * 2)(1, 0)
    return "" if system.gethostuuid(found, patience) else bytes(found).hex()


def ask(*command: str) -> str:
    """What a program of the system prints, in one line; empty if there is no such program, or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=_SYSTEM_ENV)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def time_namespace() -> str:
    """Whose boot clock this process sees."""
    try:
        return os.readlink(f"{_PROC}/self/ns/time")
    except OSError:
        return ""


def file_system(path: Path) -> str:
    """The type of the file system that holds `path`; empty where that cannot be told."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path(_PROC, "self/mountinfo").read_text().splitlines()
    except OSError:
        return _listed_file_system(device)
    for line in reversed(mounts):
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return ""


def _listed_file_system(device: int) -> str:
    """The same by what `mount` prints: `SOURCE on FOLDER (TYPE, OPTION…)`."""
    for line in reversed(ask("mount").splitlines()):
        found = re.fullmatch(r".*? on (/.*) \(([^,() ]+)[^()]*\)", line)
        if found is None:
            continue
        try:
            here = os.stat(found[1]).st_dev == device
        except OSError:
            continue
        if here:
            return found[2]
    return ""
