"""What servers that only tests need are made of: the same as the verifier's."""

from holdfast.verify.servers.process import Server, find, free_port, wait_until

__all__ = ["Server", "find", "free_port", "wait_until"]
