"""Fences: what makes a resource refuse a holder that lost its lock and does not know it yet.

Drivers are extras; a fence imports its own when it is made.
"""

from holdfast.fence.auth import FenceAuth
from holdfast.fence.dynamo import DynamoFence
from holdfast.fence.file import FencedFile, FileFence
from holdfast.fence.middleware import FenceMiddleware
from holdfast.fence.redis import FencedScript, RedisFence
from holdfast.fence.s3 import S3Fence
from holdfast.fence.sql import OldSnapshot, SqlFence
from holdfast.fence.sql_store import SqlStore
from holdfast.fence.token import Presented

__all__ = [
    "DynamoFence",
    "FenceAuth",
    "FenceMiddleware",
    "FencedFile",
    "FencedScript",
    "FileFence",
    "OldSnapshot",
    "Presented",
    "RedisFence",
    "S3Fence",
    "SqlFence",
    "SqlStore",
]
