"""A disk of its own, small enough to be filled, which can be made read-only.

A tmpfs: mounted by root, or by an ordinary user in a mount namespace that a sleeping process keeps
open. Processes get into that with `prefix`; this one reaches the files under `reach`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.verify.refusal import NotAllowed


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, path: Path, anchor: subprocess.Popen[str] | None) -> None:
        self.path, self.anchor = path, anchor
        self.prefix: list[str] = []
        self.reach = path
        if anchor is not None:
            self.prefix = ["nsenter", f"--target={anchor.pid}", "--user", "--mount", "--preserve-credentials"]
            self.reach = Path(f"/proc/{anchor.pid}/root{path}")

    def fill(self) -> None:
        """Take all the room that is left."""
        with open(self.reach / "ballast", "ab", buffering=0) as ballast:
            size = 65536
            while size:
                try:
                    ballast.write(b"x" * size)
                except OSError:
                    size //= 2

    def make_room(self) -> None:
        """Give back what `fill` took."""
        (self.reach / "ballast").unlink()

    def remount(self, options: str) -> None:
        """Mount it again with other options: `ro`, `rw`."""
        run([*self.prefix, "mount", "-o", f"remount,{options}", str(self.path)])

    def unmount(self) -> None:
        if self.anchor is None:
            run(["umount", "--lazy", str(self.path)])
            return
        self.anchor.kill()
        self.anchor.communicate()


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotAllowed("a small disk", f"{' '.join(command)}: {done.stderr.strip()}")


@contextmanager
def small_disk(path: Path, size: str = "2m") -> Iterator[SmallDisk]:
    """Mount a disk of this size at an empty folder; NotAllowed with the reason if this machine refuses."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "holdfast", str(path)]
    anchor = None
    if os.geteuid() == 0:
        run(mount)
    else:
        script = f"{' '.join(mount)} && echo mounted && exec sleep infinity"
        anchor = subprocess.Popen(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert anchor.stdout is not None
        if anchor.stdout.readline().strip() != "mounted":
            problem = f"run as root, or allow unprivileged user namespaces ({anchor.communicate()[1].strip()})"
            raise NotAllowed("a small disk", problem)
    disk = SmallDisk(path, anchor)
    try:
        yield disk
    finally:
        disk.unmount()
