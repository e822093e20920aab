"""Small disks that tests fill: the verifier's."""

from holdfast.verify.disks import SmallDisk, small_disk

__all__ = ["SmallDisk", "small_disk"]
