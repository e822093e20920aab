"""A server that speaks S3 and DynamoDB: moto's."""

from __future__ import annotations

import sys
from typing import Any

import boto3

from tests.servers.process import Server


class MotoServer(Server):
    """moto in a process of its own. It forgets everything when it ends."""

    name = "moto"

    @property
    def settings(self) -> dict[str, Any]:
        """What `boto3.client` takes."""
        return {
            "endpoint_url": f"http://127.0.0.1:{self.port}",
            "region_name": "us-east-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
        }

    def client(self, service: str) -> Any:
        return boto3.client(service, **self.settings)  # type: ignore[call-overload]

    def command(self) -> list[str]:
        return [sys.executable, "-c", "from moto.server import main; main()", "-p", str(self.port), "-H", "127.0.0.1"]
