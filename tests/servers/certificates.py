"""Certificates for tests: an authority, and whom it vouches for."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.servers.process import find


class Pair(NamedTuple):
    """A certificate and its key, in PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Vouches for those whom it issues certificates for."""

    def __init__(self, folder: Path, name: str, *, says_for_what: bool = True) -> None:
        """`says_for_what`: the certificate has a key usage, which Python 3.13 and newer want of an authority."""
        self.folder, self.name = folder, name
        key_usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"] if says_for_what else []
        self.own = Pair(folder / f"{name}.pem", folder / f"{name}.key")
        self._openssl(
            "req", "-x509", *self._new_key(self.own), "-days", "2", "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:TRUE", *key_usage, "-out", str(self.own.certificate),
        )  # fmt: skip

    def issue(self, common_name: str, file: str | None = None) -> Pair:
        """A certificate for localhost and 127.0.0.1, by this name."""
        pair = Pair(self.folder / f"{file or common_name}.pem", self.folder / f"{file or common_name}.key")
        self._openssl(
            "req", "-x509", *self._new_key(pair), "-days", "2", "-subj", f"/CN={common_name}",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-addext", "basicConstraints=critical,CA:FALSE",
            "-CA", str(self.own.certificate), "-CAkey", str(self.own.key), "-out", str(pair.certificate),
        )  # fmt: skip
        return pair

    @staticmethod
    def _new_key(pair: Pair) -> list[str]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(pair.key)]

    @staticmethod
    def _openssl(*arguments: str) -> None:
        done = subprocess.run([find("openssl"), *arguments], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
