"""A real uvicorn."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.verify.servers.process import Server

ROOT = Path(__file__).parents[2]


class UvicornServer(Server):
    """Serves an application of this project, named as `module:attribute`, from a folder of its own."""

    name = "uvicorn"

    def __init__(self, app: str) -> None:
        super().__init__()
        self._app = app

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--app-dir", str(ROOT)]
        return [sys.executable, "-m", "uvicorn", self._app, *where, "--log-level", "warning"]
