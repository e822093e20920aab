"""Which machine this is, which boot, and what a file lies on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys",
    "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs",
    "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs",
})  # fmt: skip


def boot_id() -> str:
    """A value that changes with every boot of this machine, containers included."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        if sys.platform == "darwin":
            command = ["sysctl", "-n", "kern.bootsessionuuid"]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        raise


def machine_id() -> str:
    """A value that is this machine's own; its host name where it has none."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            found = Path(path).read_text().strip()
        except OSError:
            continue
        if found:
            return found
    return f"host:{socket.gethostname()}"


def time_namespace() -> str:
    """Whose boot clock this process sees."""
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return ""


def file_system(path: Path) -> str:
    """The type of the file system that holds `path`; empty where that cannot be told."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    for line in reversed(mounts):
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return ""
