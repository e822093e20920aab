"""System calls that fail: the verifier's."""

from holdfast.verify.syscalls import failing

__all__ = ["failing"]
