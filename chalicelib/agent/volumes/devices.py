"""The search for a volume's disk among the machine's block devices: by its identity, never by its place in a list.

Serial numbers, sizes and partitions are read from /sys; udev's links in /dev/disk are used if the server names one.
Two disks with the same identity are an error, because either could be the wrong one.
"""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Tuple

from ..kernel.records import record
from .signatures import UnusableDisk

SECTOR = 512  # the kernel's unit of sizes, whatever the disk's own sectors are
SERIALS = ("serial", "device/serial", "device/vpd_pg80")  # virtio; NVMe and others; SCSI
IDENTITIES = ("serial", "by_id", "link", "backing_file")
VPD_HEAD = 4  # bytes before the serial in a VPD page


@record(frozen=True)
class BlockDevice:
    path: str  # of its node
    number: str  # major:minor, as /proc/self/mountinfo writes it
    size: int
    read_only: bool
    partitions: Tuple["BlockDevice", ...] = ()

    def part(self, path: str) -> "BlockDevice":
        return next(device for device in (self, *self.partitions) if device.path == path)


def find(identity: Dict[str, str], root: str = "/") -> Optional[BlockDevice]:
    """The disk with this identity (one of `IDENTITIES`, or several); None if there is none. Raises UnusableDisk."""
    identity = {name: identity[name] for name in IDENTITIES if identity.get(name)}
    if not identity:
        raise UnusableDisk("the server didn't say how to recognise its disk")
    folder = os.path.join(root, "sys/block")
    found = [name for name in sorted(os.listdir(folder)) if _is(root, os.path.join(folder, name), name, identity)]
    if len(found) > 1:
        raise UnusableDisk(
            "several disks of this machine have its identity: %s; detach the wrong ones" % ", ".join(found)
        )
    device = _read(os.path.join(folder, found[0])) if found else None
    return device if device is not None and device.size else None  # a disk that is being set up has no size yet


def _is(root: str, place: str, name: str, identity: Dict[str, str]) -> bool:
    if _line(place, "hidden") == "1":  # one path of several to an NVMe disk
        return False
    if "serial" in identity and identity["serial"] not in _serials(place):
        return False
    if "backing_file" in identity and _line(place, "loop/backing_file") != identity["backing_file"]:
        return False
    if "link" in identity and _linked(root, identity["link"]) != name.replace("!", "/"):
        return False
    return "by_id" not in identity or _linked(root, _plain(identity["by_id"]), "by-id") == name.replace("!", "/")


def _serials(place: str) -> List[str]:
    found = []
    for name in SERIALS:
        try:
            with open(os.path.join(place, name), "rb") as file:
                data = file.read()
        except OSError:
            continue  # another kind of disk
        found.append((data[VPD_HEAD:] if "vpd" in name else data).strip(b" \n\0").decode("utf-8", "replace"))
    return found


def _linked(root: str, path: str, folder: str = "") -> str:
    """The device that a link in /dev/disk, or in a folder of it, leads to."""
    if not all(part not in ("", ".", "..") for part in path.split("/")):
        raise UnusableDisk("%r isn't the name of a disk" % path)
    return os.path.relpath(os.path.realpath(os.path.join(root, "dev/disk", folder, path)), os.path.join(root, "dev"))


def _plain(name: str) -> str:
    if "/" in name:
        raise UnusableDisk("%r isn't the name of a disk" % name)
    return name


def _read(place: str) -> Optional[BlockDevice]:
    size, number = _line(place, "size"), _line(place, "dev")
    if not size or not number:
        return None  # it has just disappeared
    inside = sorted(name for name in os.listdir(place) if os.path.exists(os.path.join(place, name, "partition")))
    parts = (_read(os.path.join(place, name)) for name in inside)
    return BlockDevice(
        "/dev/" + os.path.basename(place).replace("!", "/"),
        number,
        int(size) * SECTOR,
        _line(place, "ro") == "1",
        tuple(part for part in parts if part is not None),
    )


def _line(place: str, name: str) -> str:
    try:
        with open(os.path.join(place, name), encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip("\n")
    except OSError:
        return ""
