"""A server that speaks S3 and DynamoDB: moto's."""

from __future__ import annotations

import sys
from typing import Any

import boto3

from holdfast.verify.servers.process import Server

# moto rolls a refused transaction back by putting a copy of the whole table back, so one request at a
# time: beside others it would undo their writes, which DynamoDB never does.
ONE_AT_A_TIME = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

app = DomainDispatcherApplication(create_backend_app)
run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=False)
"""


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
        return [sys.executable, "-c", ONE_AT_A_TIME, str(self.port)]
