"""The scripts that install what the tests need, on releases that name it differently."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"

APT_GET = """#!/bin/sh
case " $* " in *" install "*) ;; *) exit 0 ;; esac
for package; do
  case $package in chromium-browser) exit 1 ;; -*|install) ;; *) echo "$package" >>installed ;; esac
done
"""
APT_CACHE = """#!/bin/sh
case $2 in
  valkey-server|etcd|chromium-browser|strace) echo "  Candidate: 1.0" ;;
  redis-server) echo "  Candidate: (none)" ;;
esac
"""


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release without the package redis-server, and with an old name for etcd."""
    for name, script in (("apt-get", APT_GET), ("apt-cache", APT_CACHE), ("id", "#!/bin/sh\necho 0\n")):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def install(release: Path, *packages: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{release}:{os.environ['PATH']}"}
    command = [str(SCRIPTS / "apt-install"), *packages]
    return subprocess.run(command, cwd=release, env=env, capture_output=True, text=True, timeout=30.0)


def test_the_first_name_that_the_release_has_is_installed(release: Path) -> None:
    done = install(release, "strace", "redis-server|valkey-server|redis", "etcd-server|etcd")

    assert (done.returncode, done.stderr) == (0, "")
    assert (release / "installed").read_text().split() == ["strace", "valkey-server", "etcd"]


def test_what_the_release_does_not_have_is_named_in_one_line_and_the_rest_is_installed(release: Path) -> None:
    done = install(release, "zookeeper|zookeeperd", "strace", "chromium-browser")

    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "Missing packages: zookeeper or zookeeperd chromium-browser"
    assert "strace" in (release / "installed").read_text().split()
