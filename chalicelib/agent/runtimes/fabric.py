"""What jobs on several nodes need of a fast network between them: its devices, and memory that may be locked, because
network cards write to it directly."""

from __future__ import annotations

import os
import resource
from typing import Any, Dict, Tuple

INFINIBAND = "/dev/infiniband"
CAP_SYS_RESOURCE = 24
Limit = Tuple[int, int]  # soft and hard, in bytes; -1 for none


def needed(spec: Dict[str, Any], place: str = INFINIBAND) -> bool:
    return bool(spec.get("node_ssh")) and (bool(spec.get("gpus")) or os.path.isdir(place))


def give(spec: Dict[str, Any], host: Dict[str, Any], place: str = INFINIBAND) -> None:
    """Adds to the engine's HostConfig of a container."""
    if not needed(spec, place):
        return
    soft, hard = locked_memory()
    host["Ulimits"] = [*host["Ulimits"], {"Name": "memlock", "Soft": soft, "Hard": hard}]
    if os.path.isdir(place):
        own = {"PathOnHost": place, "PathInContainer": place, "CgroupPermissions": "rwm"}
        host["Devices"] = [*(host.get("Devices") or ()), own]


def locked_memory() -> Limit:
    """As much as this machine lets anybody have: what its root may not raise, its engine may not either."""
    with open("/proc/self/status") as file:
        of_root = next((int(line.split()[1], 16) for line in file if line.startswith("CapBnd")), 0)
    return (resource.RLIM_INFINITY, resource.RLIM_INFINITY) if of_root >> CAP_SYS_RESOURCE & 1 else _own_most()


def lift(spec: Dict[str, Any]) -> None:
    """For this process and its children."""
    if needed(spec):
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (ValueError, OSError):  # only root may raise it, and not everywhere
            resource.setrlimit(resource.RLIMIT_MEMLOCK, _own_most())


def _own_most() -> Limit:
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    return hard, hard
