"""The fast network between the nodes of a job: its devices, the machine's folders that programs need to use it, and
memory that may be locked, because network cards write to it directly."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Tuple

if TYPE_CHECKING:
    from ..kernel.tasks import LaunchedTask

INFINIBAND = "/dev/infiniband"
CAP_SYS_RESOURCE = 24
LIBRARY_PATH = "LD_LIBRARY_PATH"
Limit = Tuple[int, int]  # soft and hard, in bytes; -1 for none


def needed(spec: LaunchedTask, place: str = INFINIBAND) -> bool:
    fast = bool(spec.get("interconnect")) or os.path.isdir(place)
    return bool(spec.get("node_ssh")) and (bool(spec.get("gpus")) or fast)


def add_to_host_config(spec: LaunchedTask, host: Dict[str, Any], place: str = INFINIBAND) -> None:
    """Add the devices and limits to the engine's HostConfig of a container."""
    if not needed(spec, place):
        return
    soft, hard = locked_memory()
    host["Ulimits"] = [*host["Ulimits"], {"Name": "memlock", "Soft": soft, "Hard": hard}]
    known = spec.get("interconnect")
    paths = [place, *(known.get("devices", ()) if known else ())]
    there = [path for path in dict.fromkeys(paths) if os.path.exists(path)]
    devices = [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in there]
    if devices:
        host["Devices"] = [*(host.get("Devices") or ()), *devices]


def mounts(spec: LaunchedTask, taken: Iterable[str]) -> List[Dict[str, Any]]:
    """The machine's folders that the job needs for it, unless the user mounts something else there."""
    known = spec.get("interconnect")
    if not known:
        return []
    wanted = [(path, True) for path in known.get("folders", ())] + [(path, False) for path in known.get("writable", ())]
    free = [(path, reads) for path, reads in wanted if path not in set(taken) and os.path.exists(path)]
    return [{"Type": "bind", "Source": path, "Target": path, "ReadOnly": reads} for path, reads in free]


def add_library_path(spec: LaunchedTask, body: Dict[str, Any], of_image: Iterable[str]) -> None:
    """Let programs look for shared libraries in the network's folder first, and then where the job or its image has
    them."""
    known = spec.get("interconnect")
    first = known.get("libraries") if known else ""
    if first:
        given = dict(item.partition("=")[::2] for item in [*of_image, *body["Env"]]).get(LIBRARY_PATH)
        others = [item for item in body["Env"] if not item.startswith(LIBRARY_PATH + "=")]
        body["Env"] = sorted([*others, "%s=%s" % (LIBRARY_PATH, ":".join(filter(None, [first, given])))])


def locked_memory() -> Limit:
    """The most that this machine allows: if its root may not raise the limit, its engine may not either."""
    with open("/proc/self/status") as file:
        bounding = next((int(line.split()[1], 16) for line in file if line.startswith("CapBnd")), 0)
    return (resource.RLIM_INFINITY, resource.RLIM_INFINITY) if bounding >> CAP_SYS_RESOURCE & 1 else _own_limit()


def raise_limit(spec: LaunchedTask) -> None:
    """Raise the limit of locked memory for this process and its children."""
    if needed(spec):
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (ValueError, OSError):  # only root may raise it, and not everywhere
            resource.setrlimit(resource.RLIMIT_MEMLOCK, _own_limit())


def _own_limit() -> Limit:
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    return hard, hard
